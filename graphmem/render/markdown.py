"""A report as GitHub-flavoured markdown: what the terminal shows, for a code review."""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphmem.as_text import format_bytes, format_share, format_tensor
from graphmem.render.bars import bar
from graphmem.render.columns import NOTHING, layer_cells
from graphmem.render.facts import (
    category_name,
    facts,
    layers_title,
    peak_moment,
    peak_size,
    unknown_item,
)
from graphmem.render.holders import REST, kind
from graphmem.render.rows import (
    BreakdownRows,
    HolderRows,
    LayerRows,
    breakdown_rows,
    holder_rows,
    layer_rows,
)
from graphmem.report import Holder, Report

_BAR = 24
_MOST_OPEN_ROWS = 15
"""A longer table of layers is folded away."""

_SPECIAL = re.compile(r"([\\`*_\[\]<>~#])")


def as_markdown(report: Report, *, depth: int | None = None, holders: int = 10) -> str:
    """A report as markdown: the sections of ``as_text``, with every column.

    Args:
        report: a finished report.
        depth: how many components of a module path get a row of their own; deeper modules
            are summed into it. None chooses the largest depth of at most 25 rows.
        holders: how many of the largest holders to list.

    Raises:
        UsageError: a depth below 1, or a negative number of holders.
    """
    moment = peak_moment(report, code)
    sections = (
        f"**{peak_size(report)}**" + (f", {moment}" if moment else ""),
        "\n".join(f"- **{label}:** {text}" for label, text in facts(report, code)),
        _breakdown(breakdown_rows(report)),
        _layers(layer_rows(report, depth)),
        _holders(holder_rows(report, holders)),
        _unknown(report),
    )
    return "\n\n".join(section for section in sections if section) + "\n"


def code(name: str) -> str:
    """A name as a code span."""
    text = " ".join(name.replace("`", "'").split())
    return f"`{text}`" if text else ""


def plain(text: str) -> str:
    """Somebody else's words, with everything escaped that markdown would read."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _breakdown(table: BreakdownRows) -> str:
    most = max((size for _, size in table.rows), default=0)
    rows = [
        (category_name(name), *_share(size, table.total), bar(size, most, _BAR))
        for name, size in table.rows
    ]
    total = ("total", *_share(table.total, table.total), "")
    align = ("left", "right", "right", "left")
    text = _grid(("live at the peak", "bytes", "share", ""), rows, total, align)
    empty = ", ".join(map(category_name, table.empty))
    return f"{text}\n\nNothing in {empty}." if empty else text


def _share(size: int, whole: int) -> tuple[str, str]:
    return format_bytes(size), format_share(size, whole)


def _layers(layers: LayerRows) -> str:
    cells = layer_cells(layers)
    headers = [column.header for column in cells.columns]
    align = [column.align for column in cells.columns]
    rows = [(code(name), *map(plain, texts)) for name, *texts in cells.rows]
    text = _grid(headers, rows, cells.total, align)
    title = layers_title(layers)
    if len(rows) <= _MOST_OPEN_ROWS:
        return f"**{title}**\n\n{text}"
    return f"<details><summary><b>{title}</b></summary>\n\n{text}\n\n</details>"


def _holders(holders: HolderRows) -> str:
    if not holders.rows:
        return ""
    headers = ("bytes", "what", "tensor", "born in", "module", "source")
    rows = [_holder(holder) for holder in holders.rows]
    if holders.rest > 0:
        rows.append((format_bytes(holders.rest), REST, "", "", "", ""))
    total = (format_bytes(holders.total), "total", "", "", "", "")
    text = _grid(headers, rows, total, ("right", *["left"] * 5))
    return f"**Largest holders at the peak**\n\n{text}"


def _holder(holder: Holder) -> tuple[str, ...]:
    names = (format_tensor(holder.dtype, holder.shape), holder.op, holder.module, holder.source)
    marked = (code(name) if name else NOTHING for name in names)
    return (format_bytes(holder.bytes), kind(holder), *marked)


def _unknown(report: Report) -> str:
    lines = [f"- {unknown_item(item, code, plain)}" for item in report.unknown]
    return "\n".join(["**Not known, and what was assumed instead**", "", *lines]) if lines else ""


def _grid(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    total: Sequence[str],
    align: Sequence[str],
) -> str:
    """A table whose last row is its total, in bold; pipes are escaped everywhere."""
    from tabulate import tabulate  # slow to import, and needed by no --help

    bold = [f"**{text}**" if text else "" for text in total]
    escaped = [[text.replace("|", "\\|") for text in row] for row in (*rows, bold)]
    text: str = tabulate(
        escaped, headers=headers, tablefmt="pipe", colalign=align, disable_numparse=True
    )
    return text
