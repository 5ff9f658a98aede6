"""A prediction beside a snapshot, as text or Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tabulate import tabulate

from graphmem.as_text import format_bytes, format_share
from graphmem.render.columns import BYTES_WIDTH, GAP
from graphmem.render.grid import screen_width, wrap
from graphmem.render.holders import shortened_origin
from graphmem.render.sites import where

_TIMES = len("9,999,999")
_LEVELS = (
    ("peak allocated", "allocated_bytes"),
    ("peak reserved", "reserved_bytes"),
    ("before the peak's step", "resting_bytes"),
)


def rendered(comparison: dict[str, Any], kind: str, most: int = 10) -> str:
    """The text of a comparison.

    Args:
        comparison: ``Comparison.to_dict()``, and the snapshot's name as ``file``.
        kind: ``table`` or ``markdown``.
        most: how many rows to list of what only one side has.
    """
    style = "github" if kind == "markdown" else "simple"
    width = None if kind == "markdown" else screen_width()
    parts = [
        _heading(f"Beside {comparison['file']}", style),
        _levels(comparison, style),
        _filled(_matched(comparison), width),
    ]
    for key, title in (
        ("only_recorded", "Recorded, not predicted"),
        ("only_predicted", "Predicted, not recorded"),
    ):
        if comparison[key]:
            parts += [_heading(title, style), _rows(comparison[key], style, width, most)]
    return "\n\n".join(parts) + "\n"


def _heading(text: str, style: str) -> str:
    return f"### {text}" if style == "github" else text


def _filled(text: str, width: int | None) -> str:
    return text if width is None else "\n".join(wrap(text, width))


# -- peaks


def _levels(comparison: dict[str, Any], style: str) -> str:
    rows = []
    for title, key in _LEVELS:
        predicted, recorded = comparison["predicted"][key], comparison["recorded"][key]
        difference = comparison["difference"][key]
        rows.append((title, *map(_number, (predicted, recorded)), _change(difference, recorded)))
    return tabulate(
        rows,
        headers=("bytes", "predicted", "recorded", "difference"),
        tablefmt=style,
        colalign=("left", "right", "right", "right"),
        disable_numparse=True,
    )


def _number(value: int | None) -> str:
    return "not known" if value is None else f"{value:,}"


def _change(difference: int | None, recorded: int | None) -> str:
    if difference is None or recorded is None:
        return ""
    sign = "-" if difference < 0 else ""
    return f"{difference:,} ({sign}{format_share(abs(difference), recorded)})"


# -- requests


def _matched(comparison: dict[str, Any]) -> str:
    sides = ", ".join(_part(comparison[key], key) for key in ("recorded", "predicted"))
    steps = _steps(comparison["steps"])
    return f"Matched with {steps} of the prediction, by size and order: {sides}."


def _part(side: dict[str, Any], name: str) -> str:
    matched, count = side["matched_requests"], side["requests"]
    if matched == count:
        return f"all {count:,} {name} requests"
    share = format_share(side["matched_bytes"], side["requested_bytes"])
    if share == "100.0%":
        share = "over 99.9%"
    return f"{matched:,} of {count:,} {name} requests ({share} of their bytes)"


def _steps(steps: Sequence[int]) -> str:
    """``loading, step 1 and 4 times step 2``."""
    texts: list[str] = []
    for step in dict.fromkeys(steps):
        name = f"step {step}" if step else "loading"
        times = steps.count(step)
        texts.append(name if times == 1 else f"{times} times {name}")
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _rows(rows: Sequence[dict[str, Any]], style: str, width: int | None, most: int) -> str:
    room = 10_000 if width is None else width - BYTES_WIDTH - _TIMES - 2 * GAP
    cells = [_cells(row, _from(row, room)) for row in rows[:most]]
    if others := rows[most:]:
        rest = {
            "bytes": sum(row["bytes"] for row in others),
            "requests": sum(row["requests"] for row in others),
        }
        places = "1 other place" if len(others) == 1 else f"{len(others):,} other places"
        cells.append(_cells(rest, places))
    return tabulate(
        cells,
        headers=("bytes", "times", "from"),
        tablefmt=style,
        colalign=("right", "right", "left"),
        disable_numparse=True,
    )


def _cells(row: dict[str, Any], text: str) -> tuple[str, str, str]:
    return format_bytes(row["bytes"]), f"{row['requests']:,}", text


def _from(row: dict[str, Any], width: int) -> str:
    if row["module"] is not None:
        what = ", ".join(filter(None, (row["kernel"], row["op"])))
        return shortened_origin(what or None, row["module"], row["source"], width)
    return where(row, width)
