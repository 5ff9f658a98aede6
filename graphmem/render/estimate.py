"""The textbook's formula as a table, and the simulated run beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tabulate import tabulate

from graphmem.as_text import format_bytes, format_decimal
from graphmem.render.columns import NOTHING
from graphmem.render.framed import framed
from graphmem.render.grid import screen_width, wrap

_GB, _MB = 10**9, 10**6


def rendered(finished: Mapping[str, Any], kind: str) -> str:
    """An estimate as ``table``, ``markdown`` or ``json``.

    Args:
        finished: as ``Estimate.to_dict`` gives it.
    """
    simulated = finished["simulated"]
    subject = "The textbook's formula"
    if simulated is not None:
        subject += f" beside the simulated {simulated['subject']}"
    width = screen_width() if kind == "table" else None
    return framed(dict(finished), subject, kind, lambda style: _sections(finished, style, width))


def _sections(finished: Mapping[str, Any], style: str, width: int | None) -> Iterator[str]:
    yield _terms(finished, style)
    yield _lines([_sum(finished), *_headroom(finished)], width)
    simulated = finished["simulated"]
    if simulated is not None:
        yield _compared(finished, simulated, style)
        yield _lines(list(_reasons(simulated)), width)


def _unit(finished: Mapping[str, Any]) -> str:
    """The unit of the tables: GB, of a small model MB."""
    return "GB" if finished["total_bytes"] >= _GB else "MB"


def _terms(finished: Mapping[str, Any], style: str) -> str:
    unit = _unit(finished)
    rows = [(t["name"], format_decimal(t["bytes"], unit=unit), t["how"]) for t in finished["terms"]]
    rows.append(("total", format_decimal(finished["total_bytes"], unit=unit), ""))
    return _table(("term", "bytes", "how"), rows, ("left", "right", "left"), style)


def _sum(finished: Mapping[str, Any]) -> str:
    """The sum as the textbook writes it, of its rounded terms: ``14 + 14 = 28 GB``.

    Below ten GB (or MB) it has one decimal.
    """
    unit = _unit(finished)
    one = _GB if unit == "GB" else _MB
    decimals = 0 if finished["total_bytes"] >= 10 * one else 1
    scale = one // 10**decimals
    rounded = [(t["bytes"] + scale // 2) // scale * scale for t in finished["terms"]]
    texts = [format_decimal(n, decimals, unit=unit).split()[0] for n in rounded]
    return f"Rounded: {' + '.join(texts)} = {format_decimal(sum(rounded), decimals, unit=unit)}"


def _headroom(finished: Mapping[str, Any]) -> Iterator[str]:
    if spare := finished["headroom_bytes"]:
        whole = format_decimal(finished["total_bytes"] + spare)
        yield f"With {format_decimal(spare)} to stay free: {whole}"


def _compared(finished: Mapping[str, Any], simulated: Mapping[str, Any], style: str) -> str:
    unit = _unit(finished)
    rows = [
        (
            row["name"],
            format_decimal(row["textbook_bytes"], unit=unit),
            format_decimal(row["at_peak_bytes"], unit=unit),
            NOTHING if row["most_bytes"] is None else format_decimal(row["most_bytes"], unit=unit),
            _error(row["textbook_bytes"], row["at_peak_bytes"]),
        )
        for row in simulated["rows"]
    ]
    total, allocated = finished["total_bytes"], simulated["allocated_bytes"]
    sizes = format_decimal(total, unit=unit), format_decimal(allocated, unit=unit)
    rows.append(("total", *sizes, "", _error(total, allocated)))
    headers = ("term", "textbook", "simulated, at the peak", "in a whole step", "error")
    return _table(headers, rows, ("left", *["right"] * 4), style)


def _error(textbook: int, simulated: int) -> str:
    """The textbook's error, as a share of what is simulated."""
    if not simulated:
        return NOTHING if textbook else "0.0%"
    return f"{(textbook - simulated) / simulated:+.1%}"


def _reasons(simulated: Mapping[str, Any]) -> Iterator[str]:
    when = f"step {simulated['step']}, {simulated['phase']}"
    sizes = {name: simulated[f"{name}_bytes"] for name in ("allocated", "reserved")}
    texts = [f"{_both(size)} {name}" for name, size in sizes.items() if size is not None]
    yield f"The simulated peak is in {when}: {', '.join(texts)}"
    for row in simulated["rows"]:
        if row["why"]:
            yield f"{row['name']}: {'; '.join(row['why'])}"


def _both(nbytes: int) -> str:
    return f"{format_decimal(nbytes)} ({format_bytes(nbytes)})"


def _lines(lines: list[str], width: int | None) -> str:
    if width is None:
        return "\n".join(f"- {line}" for line in lines)
    return "\n".join(part for line in lines for part in wrap(line, width, later="  "))


def _table(
    headers: tuple[str, ...], rows: Sequence[tuple[str, ...]], align: tuple[str, ...], style: str
) -> str:
    made: str = tabulate(rows, headers, tablefmt=style, colalign=align, disable_numparse=True)
    return made
