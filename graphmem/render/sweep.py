"""A sweep as a table, and as a heat map: how much of the memory each case takes, and what fits.

Rows and columns of the map are the two axes with the most values; cases that differ in more
have a map each. A shade says how much of the GPU's memory is taken, or, where no GPU is named,
how much of the sweep's largest peak.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from tabulate import tabulate

from graphmem.as_text import format_bytes, shorten_dotted
from graphmem.render.columns import NOTHING
from graphmem.render.grid import screen_width

Row = Mapping[str, Any]
"""An outcome as ``sweep.Outcome.to_dict`` gives it."""

AXES = ("subject", "precision", "device", "seq", "batch")
_NAMES = ("model", "precision", "GPU", "seq", "batch")
_SHADES = "░▒▓█"
_NO_FIT, _FAILED, _NONE = "✗", "!", " "
_MOST_ROWS = 40
"""A longer table shows every so many rows; the map has them all."""


def as_text(rows: Sequence[Row], width: int | None = None) -> str:
    """Table, heat map and errors, for a terminal."""
    ordered = _ordered(rows)
    width = screen_width(width)
    parts = [_table(_thinned(ordered), "plain", width), *_maps(ordered, width), _errors(ordered)]
    return "\n\n".join(part for part in parts if part) + "\n"


def as_markdown(rows: Sequence[Row]) -> str:
    """Table with a column for the fit, the heat map in a code block, and errors."""
    ordered = _ordered(rows)
    maps = [f"```\n{text}\n```" for text in _maps(ordered, 80)]
    parts = [_table(ordered, "pipe", None), *maps, _errors(ordered)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _ordered(rows: Sequence[Row]) -> list[Row]:
    """By the axes in the order of their first values, sizes by size."""
    first = {axis: {row[axis]: i for i, row in reversed(list(enumerate(rows)))} for axis in AXES}

    def place(row: Row) -> tuple[int, ...]:
        return tuple(
            (row[axis] or 0) if axis in ("seq", "batch") else first[axis][row[axis]]
            for axis in AXES
        )

    return sorted(rows, key=place)


def _varying(rows: Sequence[Row]) -> list[str]:
    """The axes in which cases differ; the batch if none."""
    varying = [axis for axis in AXES if len({row[axis] for row in rows}) > 1]
    return varying or ["batch"]


# -- the table


def _thinned(rows: list[Row]) -> list[Row]:
    step = -(-len(rows) // _MOST_ROWS)
    return rows[::step] if step == 1 else [*rows[:-1:step], rows[-1]]


def _table(rows: Sequence[Row], kind: str, width: int | None) -> str:
    axes = _varying(rows)
    headers = [*(_NAMES[AXES.index(axis)] for axis in axes), "allocated", "reserved"]
    has_gpu = any(row["device"] for row in rows)
    headers += ["fits", "free"] if has_gpu else []
    headers.append("peak in")
    texts = [[*map(_value, (row[axis] for axis in axes)), *_cells(row, has_gpu)] for row in rows]
    if width is not None:
        taken = [max(len(t[i]) for t in [headers, *texts]) for i in range(len(headers) - 1)]
        left = max(width - sum(taken) - 2 * len(taken), 12)
        texts = [[*text[:-1], shorten_dotted(text[-1], left)] for text in texts]
    align = ["left" if axis in ("subject", "precision", "device") else "right" for axis in axes]
    align += ["right"] * (len(headers) - len(axes) - 1) + ["left"]
    # A header of tabulate's own would widen its column by two.
    own = headers if width is None else ()
    table = texts if width is None else [headers, *texts]
    made: str = tabulate(table, headers=own, tablefmt=kind, colalign=align, disable_numparse=True)
    return "\n".join(line.rstrip() for line in made.split("\n"))


def _cells(row: Row, has_gpu: bool) -> list[str]:
    answer = row["answer"]
    if answer is None:
        return [NOTHING, NOTHING, *([NOTHING, NOTHING] if has_gpu else []), "failed"]
    sizes = [answer["allocated_bytes"], answer["reserved_bytes"]]
    cells = [NOTHING if size is None else format_bytes(size) for size in sizes]
    if has_gpu:
        fits, spare = answer["fits"], answer["headroom_bytes"]
        cells.append(NOTHING if fits is None else "yes" if fits else "no")
        cells.append(NOTHING if spare is None else _signed(spare))
    return [*cells, f"{answer['phase']}, {answer['module']}"]


def _signed(nbytes: int) -> str:
    return format_bytes(nbytes) if nbytes >= 0 else f"-{format_bytes(-nbytes)}"


def _value(value: object) -> str:
    return NOTHING if value is None else str(value)


# -- the heat map


def _maps(rows: Sequence[Row], width: int) -> list[str]:
    """A map for each combination of the other axes, and what its signs mean."""
    axes = sorted(_varying(rows), key=lambda axis: len({row[axis] for row in rows}))
    across, others = axes[-1], axes[:-1]
    if len({row[across] for row in rows}) < 2:
        return []
    most = max((_taken(row) for row in rows if row["answer"]), default=0)
    columns = list(dict.fromkeys(row[across] for row in rows))
    lines = _strips(rows, across, [a for a in AXES if a in others], columns, most, width)
    of = "the GPU's memory" if any(row["device"] for row in rows) else "the largest peak"
    legend = f"{' '.join(_SHADES)} up to 25, 50, 75, 100 % of {of}"
    legend += f"   {_NO_FIT} does not fit   {_FAILED} failed"
    return ["\n".join([*lines, "", legend])]


def _strips(
    rows: Sequence[Row],
    across: str,
    others: list[str],
    columns: list[Any],
    most: int,
    width: int,
) -> list[str]:
    """One line for each combination of the other axes, in as many strips as the width asks."""

    def name(row: Row) -> str:
        return " ".join(_value(row[axis]) for axis in others)

    label = max(len(name(row)) for row in rows)
    label = min(max(label, len(_NAMES[AXES.index(across)])), width // 2)
    named = [list(group) for _, group in groupby(rows, key=name)]
    cell = max(1, min(3, (width - label - 2) // len(columns)))
    room = (width - label - 2) // cell
    lines = []
    for start in range(0, len(columns), room):
        part = columns[start : start + room]
        head = _value(part[0]).ljust(max(len(part) * cell - len(_value(part[-1])), 0))
        ends = f"{head}{_value(part[-1])}" if len(part) > 1 else head.strip()
        lines.append(f"{_NAMES[AXES.index(across)][:label].ljust(label)}  {ends}")
        for group in named:
            signs = {row[across]: _sign(row, most) for row in group}
            shown = "".join(signs.get(column, _NONE) * cell for column in part)
            lines.append(f"{shorten_dotted(name(group[0]), label).ljust(label)}  {shown}")
    return [line.rstrip() for line in lines]


def _sign(row: Row, most: int) -> str:
    answer = row["answer"]
    if answer is None:
        return _FAILED
    if answer["fits"] is False:
        return _NO_FIT
    spare = answer["headroom_bytes"]
    taken = _taken(row)
    whole = most if spare is None else taken + spare
    return _SHADES[min(4 * taken // max(whole, 1), 3)]


def _taken(row: Row) -> int:
    answer = row["answer"]
    reserved: int | None = answer["reserved_bytes"]
    return int(answer["allocated_bytes"]) if reserved is None else reserved


def _errors(rows: Sequence[Row]) -> str:
    """Each error once, with the first case that has it."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["error"] is not None:
            found.setdefault(row["error"], []).append(row)
    lines = []
    for error, failed in found.items():
        where = " ".join(f"{axis} {_value(failed[0][axis])}" for axis in _varying(rows))
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        lines.append(f"{where}{more}: {error}")
    return "\n".join(lines)
