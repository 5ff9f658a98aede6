"""Checked models as a table, Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from graphmem.as_text import format_bytes, format_share, shorten
from graphmem.render.columns import GAP, NOTHING
from graphmem.render.facts import category_name, origin
from graphmem.render.grid import grid, screen_width, wrap
from graphmem.render.markdown import code, plain

SCHEMA = "graphmem.check/1"
_LEAST_NAME = 12
_HEADERS = ("model", "allocated", "reserved", "left", "growth", "verdict")
_ALIGN = ("left", "right", "right", "right", "right", "left")

Row = Mapping[str, Any]
"""An outcome as ``checks.Outcome.to_dict`` gives it."""


def as_text(rows: Sequence[Row], width: int | None = None) -> str:
    """A table, and under it the reasons, for a terminal."""
    width = screen_width(width)
    cells = [_cells(row) for row in rows]
    taken = sum(_width(column) + GAP for column in zip(_HEADERS[1:], *cells, strict=True))
    names = [shorten(row["name"], max(width - taken, _LEAST_NAME)) for row in rows]
    cells = [(name, *own) for name, own in zip(names, cells, strict=True)]
    table = grid(_HEADERS, cells, (_total(rows), "", "", "", "", ""), _ALIGN)
    lines = [line for row in rows for line in _reasons(row, width)]
    return "\n".join([*table, *([""] if lines else []), *lines]) + "\n"


def _width(column: Sequence[str]) -> int:
    return max(map(len, column))


def as_markdown(rows: Sequence[Row]) -> str:
    """The same for a comment of a code review."""
    cells = [(code(row["name"]), *map(plain, _cells(row))) for row in rows]
    table: str = tabulate(
        cells, headers=_HEADERS, tablefmt="pipe", colalign=_ALIGN, disable_numparse=True
    )
    reasons = [f"- {code(row['name'])}: {plain(text)}" for row in rows for text in _sentences(row)]
    parts = [f"**{_total(rows)}**", table, *(["\n".join(reasons)] if reasons else [])]
    return "\n\n".join(parts) + "\n"


def as_json(rows: Sequence[Row]) -> str:
    """The outcomes as JSON, with whether all is well."""
    values = {"schema": SCHEMA, "ok": all(row["ok"] for row in rows), "models": list(rows)}
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def _total(rows: Sequence[Row]) -> str:
    bad = sum(not row["ok"] for row in rows)
    if bad:
        return f"{bad} of {len(rows)} failed"
    return f"{len(rows)} model{'s' * (len(rows) != 1)} within limits"


def _cells(row: Row) -> tuple[str, ...]:
    sizes = (row[key] for key in ("allocated_bytes", "reserved_bytes", "spare_bytes"))
    cells = (NOTHING if n is None else format_bytes(n) for n in sizes)
    return (*cells, _growth(row), _verdict(row["failures"]))


def _verdict(failures: Sequence[Mapping[str, Any]]) -> str:
    """The first broken rule, and how many more there are."""
    if not failures:
        return "ok"
    more = f" +{len(failures) - 1}" if len(failures) > 1 else ""
    return words(failures[0]["kind"]) + more


def words(kind: str) -> str:
    """A rule's name as words."""
    return kind.replace("-", " ")


def _growth(row: Row) -> str:
    grown, before = row["growth_bytes"], row["before_bytes"]
    if grown is None:
        return NOTHING
    share = format_share(abs(grown), before)
    return f"{format_bytes(grown, signed=True)} ({'-' if grown < 0 else ''}{share})"


def _reasons(row: Row, width: int) -> Iterator[str]:
    for text in _sentences(row):
        yield from wrap(f"{row['name']}: {text}", width, later="  ")


def _sentences(row: Row) -> list[str]:
    """Why a model failed, and where its peak is."""
    texts = [failure["text"] for failure in row["failures"]]
    moment = row["moment"]
    if texts and moment is not None:
        parts = ", ".join(
            f"{category_name(category)} {format_bytes(nbytes)}"
            for category, nbytes in row["largest"].items()
        )
        who = origin(moment["op"], moment["module"], moment["source"])
        texts.append(f"the peak is in {moment['phase']}, at {who}; most of it: {parts}")
    return texts
