"""A diff as text for a terminal, no line of it wider than asked for; and as JSON."""

from __future__ import annotations

import json

from graphmem.as_text import format_bytes, shorten, shorten_dotted
from graphmem.diffs import Diff, Group, HolderGroup, Status
from graphmem.render.bars import bar
from graphmem.render.columns import BYTES_WIDTH, GAP, size_cell
from graphmem.render.diff_rows import (
    Row,
    breakdown_rows,
    differing,
    facts,
    holder,
    layer_rows,
    sides,
    sizes,
    step_peaks,
    total_rows,
    unknowns,
    what,
)
from graphmem.render.grid import grid, screen_width, wrap

_LABEL = 10
_MOST_BAR = 40
_MOST_LAYERS = 15
_MOST_HOLDERS = 5
_LEAST_WIDTH = 60
_WIDE = 110
"""From this width on the table of layers says what became of a module, and of its weights."""

_HEADERS = ("before", "after", "change", "")
_RIGHT = ("right",) * 3


def as_text(diff: Diff, *, width: int | None = None) -> str:
    """A diff for a terminal: the summary, what differs, and what changed by size.

    Args:
        diff: a finished diff.
        width: characters of a line, 60 or more; if None those of the terminal, at most 160.
    """
    width = max(screen_width(width), _LEAST_WIDTH)
    sections = (
        wrap(diff.summary, width),
        _facts(diff, width),
        _memory(diff, width),
        _layers(diff, width),
        _holders("Held at the peak, and not before", diff.came, width),
        _holders("Held before, and no longer", diff.went, width),
        _unknown(diff, width),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def as_json(diff: Diff) -> str:
    """A diff as JSON text, schema ``graphmem.diff/1``, with a newline at its end."""
    return json.dumps(diff.to_dict(), indent=2, ensure_ascii=False) + "\n"


def _facts(diff: Diff, width: int) -> list[str]:
    lines: list[str] = []
    for label, text in (*sides(diff), *differing(diff), *facts(diff), *step_peaks(diff)):
        lines += wrap(text, width, first=label.ljust(_LABEL), later=" " * _LABEL)
    return lines


def _memory(diff: Diff, width: int) -> list[str]:
    """The totals, and below them what the allocated bytes are made of."""
    changed, same = breakdown_rows(diff)
    totals = [row for row in total_rows(diff) if row.name != "allocated"]
    allocated = Row("allocated", diff.allocated)
    folded = [Row("unchanged", same.change)] if same.name else []
    shown = [*totals, *changed, *folded, allocated]
    names = max(len(row.name) for row in shown)
    shares = max(len(row.cells[-1]) for row in shown)
    room = min(_MOST_BAR, width - names - 3 * BYTES_WIDTH - shares - 5 * GAP)
    most = max((abs(row.change.change) for row in changed), default=0)
    # A narrow table has no bars, a narrower one no shares.
    count = 6 if room > 0 else 5 if room + GAP >= 0 else 4

    def cells(row: Row) -> tuple[str, ...]:
        drawn = bar(abs(row.change.change), most, room) if row in changed and room > 0 else ""
        return (row.name, *row.cells, drawn)[:count]

    align = ("left", *_RIGHT, "right", "left")[:count]
    header = ("at the peak", *_HEADERS, "")[:count]
    lines = grid(header, [cells(row) for row in (*changed, *folded)], cells(allocated), align)
    lines += _below(lines, [cells(row) for row in totals], align)
    return [*lines, *wrap(same.name, width)]


def _below(lines: list[str], rows: list[tuple[str, ...]], align: tuple[str, ...]) -> list[str]:
    """Further rows in the columns of a table: other totals, which do not add up with it."""
    rule = lines[1].split(" " * GAP)
    texts = []
    for row in rows:
        cells = (
            text.rjust(len(line)) if side == "right" else text.ljust(len(line))
            for text, line, side in zip(row, rule, align, strict=False)
        )
        texts.append((" " * GAP).join(cells).rstrip())
    return texts


def _layers(diff: Diff, width: int) -> list[str]:
    table = layer_rows(diff, _MOST_LAYERS)
    if not table.rows:
        return ["No layer changed"]
    wide = width >= _WIDE
    extra = ("what", "params", "saved") if wide else ()
    rows = [_layer(group, width // 6 if wide else 0) for group in table.rows]
    blank = ("",) * len(extra)
    rows += [
        (row.name, *blank, *sizes(row.change))
        for row in (table.others, table.unchanged)
        if row.name
    ]
    total = ("total", *blank, *sizes(table.total.change))
    header = ("layers, at the peak", *extra, *_HEADERS[:3])
    taken = sum(
        max(len(row[i]) for row in (header, *rows, total)) + GAP for i in range(1, len(header))
    )
    cut = [(shorten_dotted(row[0], max(8, width - taken)), *row[1:]) for row in rows]
    align = ("left", *(("left", "right", "right") if wide else ()), *_RIGHT)
    return grid(header, cut, total, align)


def _layer(group: Group, room: int) -> tuple[str, ...]:
    """The cells of a row; ``room`` is that of what became of it, 0 in a narrow table."""
    if not room:
        note = "" if group.status not in (Status.NEW, Status.GONE) else f" ({group.status})"
        return (f"{group.label}{note}", *sizes(group.live))
    weights, saved = (
        format_bytes(change.change, signed=True) if change.change else size_cell(0)
        for change in (group.columns["parameter_bytes"], group.columns["saved_bytes"])
    )
    return (group.label, shorten(what(group), room), weights, saved, *sizes(group.live))


def _holders(title: str, groups: tuple[HolderGroup, ...], width: int) -> list[str]:
    if not groups:
        return []
    lines = [title, ""]
    for group in groups[:_MOST_HOLDERS]:
        size = format_bytes(group.bytes).rjust(BYTES_WIDTH)
        indent = " " * (BYTES_WIDTH + GAP)
        lines += wrap(holder(group), width, first=f"{size}{' ' * GAP}", later=indent)
    more = groups[_MOST_HOLDERS:]
    if more:
        size = format_bytes(sum(group.bytes for group in more)).rjust(BYTES_WIDTH)
        lines.append(f"{size}{' ' * GAP}in {len(more)} more places, in the JSON diff")
    return lines


def _unknown(diff: Diff, width: int) -> list[str]:
    lines: list[str] = []
    for word, text in unknowns(diff):
        lines += wrap(f"{word}: {text}", width, first="- ", later="  ")
    return ["Not known, in one of the two", "", *lines] if lines else []
