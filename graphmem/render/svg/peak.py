"""Who holds the peak: a column by category, and modules beside each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from graphmem.as_text import format_bytes, format_share, shorten
from graphmem.render.facts import category_name
from graphmem.render.palette import STACK
from graphmem.render.rows import automatic_depth, prefix_of
from graphmem.render.svg.elements import CHARACTER, area, element, fits, label, rule, text, words
from graphmem.render.svg.timeline import Box
from graphmem.report import Report
from graphmem.report.history import History

_LINE = 26.0
"""The least distance of two labels of the column."""

_MOST_MODULES = 44
_MODULE_SIZE = 10.0
_LEAST_CHARACTERS = 5


def column(report: Report, box: Box, room: float) -> Iterator[str]:
    """The breakdown as a column on the timeline's scale, its names and sizes to the right.

    Args:
        room: the width for the names.
    """
    held = [(name, report.breakdown[name]) for name in STACK if report.breakdown[name]]
    edges: list[tuple[float, float]] = []
    below = 0
    for name, nbytes in held:
        top, bottom = box.y(below + nbytes), box.y(below)
        title = element("title", words(f"{category_name(name)}: {nbytes:,} bytes"))
        shape = {"x": box.left, "y": top, "width": box.width, "height": bottom - top}
        yield area(name, "rect", title, **shape)
        edges.append((top, bottom))
        below += nbytes
    wanted = [(top + bottom) / 2 for top, bottom in edges]
    places = spread(wanted, _LINE, box.top + 6, box.bottom - 6)
    for (name, nbytes), middle, y in zip(held, wanted, places, strict=True):
        yield from _name(name, nbytes, below, (box.right, middle), (box.right + 18, y), room)


def _name(
    name: str,
    nbytes: int,
    total: int,
    start: tuple[float, float],
    end: tuple[float, float],
    room: float,
) -> Iterator[str]:
    x, y = end
    yield rule(*start, x - 4, y, "faint", stroke_width=0.75)
    yield area(name, "rect", x=x, y=y - 9, width=8, height=18, rx=1.5)
    yield text(x + 14, y - 1, category_name(name), "text", size=11.5)
    share = f"{format_bytes(nbytes)}, {format_share(nbytes, total)}"
    yield text(x + 14, y + 11, share, size=10.5)


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places near the wanted ones (which fall) that are at least ``gap`` apart.

    They are all between ``low`` and ``high`` where there is room for that, and else closer.
    """
    count = len(wanted)
    gap = min(gap, (high - low) / max(1, count - 1))
    places = list(wanted)
    for at in range(count):
        floor = high if at == 0 else places[at - 1] - gap
        places[at] = min(places[at], floor)
    for at in reversed(range(count)):
        ceiling = low if at == count - 1 else places[at + 1] + gap
        places[at] = max(places[at], ceiling)
    return places


def modules(report: Report, history: History, box: Box) -> Iterator[str]:
    """Modules beside each other, as wide as what they hold, each a stack of categories."""
    depth = automatic_depth(report.layers, _MOST_MODULES)
    held = held_by_module(history, depth)
    total = sum(sum(parts.values()) for parts in held.values())
    x = box.left
    for name, parts in held.items():
        own = sum(parts.values())
        wide = box.width * own / max(1, total)
        yield from _stack(name, parts, x, wide, box)
        x += wide


def held_by_module(history: History, depth: int) -> dict[str, dict[str, int]]:
    """The bytes live at the peak by module, collapsed to a depth, and category.

    In order of appearance; they add up to the peak. The scratch of the peak's operation is its
    module's.
    """
    held: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(STACK, 0))
    at = history.peak_index
    for tensor in history.tensors:
        if tensor.born <= at and (tensor.freed is None or tensor.freed >= at):
            parts = held[prefix_of(tensor.module, depth)]
            parts[tensor.category] += tensor.requested_bytes
            parts["allocator_slack"] += tensor.bytes - tensor.requested_bytes
    for name in ("workspaces", "allocator_slack"):
        rest = history.categories[name][at] - sum(parts[name] for parts in held.values())
        if rest:
            held[prefix_of(history.moments[at].module, depth)][name] += rest
    return dict(held)


def _stack(name: str, parts: Mapping[str, int], x: float, wide: float, box: Box) -> Iterator[str]:
    own = sum(parts.values())
    gap = 1.0 if wide > 4 else 0.0
    bottom, largest = box.bottom, max(parts, key=lambda category: parts[category])
    for category in STACK:
        if not parts[category]:
            continue
        high = box.height * parts[category] / own
        bottom -= high
        what = f"{name}, {category_name(category)}: {parts[category]:,} bytes"
        shape = {"x": x, "y": bottom, "width": max(0.0, wide - gap), "height": high}
        yield area(category, "rect", element("title", words(what)), **shape)
        if category == largest and high > 14 and fits(format_bytes(own), wide - 6, _MODULE_SIZE):
            yield label(x + 4, bottom + 12, format_bytes(own), category)
    shown = _shortened(name, wide - 4)
    if shown:
        yield text(x + wide / 2, box.bottom + 13, shown, size=_MODULE_SIZE, text_anchor="middle")


def _shortened(name: str, width: float) -> str:
    """The end of a path that fits: ``h.3`` of ``transformer.h.3``; nothing in a few pixels."""
    parts = name.split(".")
    for start in range(len(parts)):
        short = ".".join(parts[start:])
        if fits(short, width, _MODULE_SIZE):
            return short
    room = int(width / (_MODULE_SIZE * CHARACTER))
    return shorten(parts[-1], room) if room >= _LEAST_CHARACTERS else ""
