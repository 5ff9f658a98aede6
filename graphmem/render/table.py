"""A report as text for a terminal, no line of it wider than asked for."""

from __future__ import annotations

from graphmem.as_text import format_bytes, format_share
from graphmem.render.bars import bar
from graphmem.render.columns import BYTES_WIDTH, GAP, layer_cells
from graphmem.render.facts import (
    category_name,
    facts,
    layers_title,
    peak_moment,
    peak_size,
    unknown_item,
)
from graphmem.render.grid import grid, screen_width, wrap
from graphmem.render.holders import holder_cells
from graphmem.render.rows import (
    BreakdownRows,
    HolderRows,
    LayerRows,
    breakdown_rows,
    holder_rows,
    layer_rows,
)
from graphmem.report import Report

_MOST_BAR = 60
_LABEL = 10


def as_text(
    report: Report, *, width: int | None = None, depth: int | None = None, holders: int = 10
) -> str:
    """A report for a terminal: headline, breakdown, layers, largest holders, assumptions.

    Args:
        report: a finished report.
        width: characters of a line, 40 or more; if None those of the terminal, at most 160.
        depth: how many components of a module path get a row of their own; deeper modules
            are summed into it. None chooses the largest depth of at most 25 rows.
        holders: how many of the largest holders to list.

    Raises:
        UsageError: a depth below 1, or a negative number of holders.
    """
    width = screen_width(width)
    sections = (
        wrap(f"{peak_size(report)}, {peak_moment(report)}".rstrip(", "), width),
        _facts(report, width),
        _breakdown(breakdown_rows(report), width),
        _layers(layer_rows(report, depth), width),
        _holders(holder_rows(report, holders), width),
        _unknown(report, width),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _facts(report: Report, width: int) -> list[str]:
    lines: list[str] = []
    for label, text in facts(report):
        lines += wrap(text, width, first=label.ljust(_LABEL), later=" " * _LABEL)
    return lines


def _breakdown(table: BreakdownRows, width: int) -> list[str]:
    headers = ["live at the peak", "bytes", "share", ""]
    names = [category_name(name) for name, _ in table.rows]
    sizes = [size for _, size in table.rows]
    taken = max(map(len, (headers[0], *names))) + BYTES_WIDTH + len("100.0%") + 3 * GAP
    room = min(_MOST_BAR, width - taken)
    rows = [
        (name, *_share(size, table.total), bar(size, max(sizes), room))
        for name, size in zip(names, sizes, strict=True)
    ]
    total = ("total", *_share(table.total, table.total), "")
    shown = 4 if room > 0 else 3  # a narrow table has no bars
    cells = [row[:shown] for row in (headers, *rows, total)]
    lines = grid(cells[0], cells[1:-1], cells[-1], ("left", "right", "right", "left")[:shown])
    empty = ", ".join(map(category_name, table.empty))
    return [*lines, *wrap(f"nothing in {empty}" if empty else "", width)]


def _share(size: int, whole: int) -> tuple[str, str]:
    return format_bytes(size), format_share(size, whole)


def _layers(layers: LayerRows, width: int) -> list[str]:
    cells = layer_cells(layers, width)
    headers = [column.header for column in cells.columns]
    align = [column.align for column in cells.columns]
    return [
        *wrap(layers_title(layers), width),
        "",
        *grid(headers, cells.rows, cells.total, align),
    ]


def _holders(holders: HolderRows, width: int) -> list[str]:
    if not holders.rows:
        return []
    cells = holder_cells(holders, width)
    align = ["right", *["left"] * (len(cells.headers) - 1)]
    return [
        "Largest holders at the peak",
        "",
        *grid(cells.headers, cells.rows, cells.total, align),
    ]


def _unknown(report: Report, width: int) -> list[str]:
    lines: list[str] = []
    for item in report.unknown:
        lines += wrap(unknown_item(item), width, first="- ", later="  ")
    return ["Not known, and what was assumed instead", "", *lines] if lines else []
