"""The timeline of a picture: live bytes, stacked by category, with phases and the peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TypeVar

from graphmem.render.palette import LIGHT, STACK
from graphmem.render.svg.elements import area, element, fits, rule, text
from graphmem.report.history import History

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_TENTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
"""Steps of an axis in tenths of its unit."""

_MOST_TICKS = 7


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Box:
    """A place in a picture, in its units, and the bytes of its whole height."""

    left: float
    top: float
    width: float
    height: float
    most: float

    def y(self, nbytes: float) -> float:
        """The height of a number of bytes."""
        return self.top + self.height * (1 - nbytes / self.most)

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.top + self.height


def timeline(history: History, box: Box) -> Iterator[str]:
    """All of it: axis, bands of steps and phases, areas, the line of what is reserved, the peak."""
    yield from _axis(box)
    yield from _bands(history, box)
    columns = _columns(history, int(box.width))
    yield from _areas(history, box, columns)
    yield from _reserved(history, box, len(columns))
    yield from _boundaries(history, box)
    yield from _pin(history, box)


def _axis(box: Box) -> Iterator[str]:
    for nbytes, name in _ticks(box.most, _MOST_TICKS):
        y = box.y(nbytes)
        yield rule(box.left, y, box.right, y)
        yield text(box.left - 7, y + 4, name, text_anchor="end")
    yield text(box.right, box.bottom + 15, "operations →", text_anchor="end", size=10)


def _ticks(most: float, count: int) -> list[tuple[float, str]]:
    """Round numbers of bytes from 0 to ``most``, of at most ``count`` steps, as they are read."""
    power = max(p for p in range(len(_UNITS)) if 1024**p <= max(1, most))
    unit = 1024**power
    tenths = next(step for step in _TENTHS if most / unit * 10 / step <= count)
    found = [(0.0, "0")]
    for at in range(1, int(most / unit * 10 / tenths) + 1):
        found.append((at * tenths * unit / 10, f"{at * tenths / 10:g} {_UNITS[power]}"))
    return found


def _columns(history: History, width: int) -> list[int]:
    """For each column of the picture, the operation with the most bytes of those in it."""
    allocated = [moment.allocated_bytes for moment in history.moments]
    return [max(span, key=allocated.__getitem__) for span in _spans(len(allocated), width)]


def _spans(number: int, width: int) -> list[range]:
    """The operations of each column."""
    count = min(number, width)
    edges = [at * number // count for at in range(count + 1)] if count else []
    return [range(first, last) for first, last in pairwise(edges)]


def _areas(history: History, box: Box, columns: Sequence[int]) -> Iterator[str]:
    below = [0] * len(columns)
    for category in STACK:
        values = history.categories[category]
        above = [base + values[at] for base, at in zip(below, columns, strict=True)]
        if above != below:
            up = _outline(box, above)
            down = _outline(box, below, backwards=True)
            yield area(category, d=f"M{box.left:g} {_y(box, above[0])}{up}{down}Z")
        below = above


def _outline(box: Box, heights: Sequence[int], *, backwards: bool = False) -> str:
    """Steps along heights, with a command only where the height changes."""
    wide = box.width / len(heights)
    order = list(range(len(heights)))
    if backwards:
        order.reverse()
    parts: list[str] = []
    last = "" if backwards else _y(box, heights[0])
    for at in order:
        y = _y(box, heights[at])
        if y != last:
            edge = at + 1 if backwards else at
            parts.append(f"H{box.left + edge * wide:.1f}V{y}")
            last = y
    parts.append(f"H{box.left if backwards else box.right:.1f}")
    return "".join(parts)


def _y(box: Box, nbytes: int) -> str:
    return f"{box.y(nbytes):.1f}"


def _reserved(history: History, box: Box, count: int) -> Iterator[str]:
    reserved = [moment.reserved_bytes for moment in history.moments]
    known = [nbytes for nbytes in reserved if nbytes is not None]
    if not known or len(known) < len(reserved):
        return
    heights = [max(known[span.start : span.stop]) for span in _spans(len(known), count)]
    yield element(
        "path",
        d=f"M{box.left:g} {_y(box, heights[0])}{_outline(box, heights)}",
        class_="gm-s-text",
        fill="none",
        stroke=LIGHT.text,
        stroke_dasharray="4 2.5",
    )


def _bands(history: History, box: Box) -> Iterator[str]:
    """The names of steps and phases above the areas."""
    steps = [moment.step for moment in history.moments]
    if len(set(steps)) > 1:
        for step, x, end in _runs(steps, box):
            yield from _band(f"step {step}", x, end, box.top - 35, "text")
    for (_, phase), x, end in _runs(_phases(history), box):
        yield from _band(phase, x, end, box.top - 19, "faint")


def _phases(history: History) -> list[tuple[int, str]]:
    return [(moment.step, moment.phase) for moment in history.moments]


def _runs(values: Sequence[T], box: Box) -> Iterator[tuple[T, float, float]]:
    """Each run of the same value with its left and right edge."""
    wide = box.width / max(1, len(values))
    at = 0
    for value, same in groupby(values):
        count = sum(1 for _ in same)
        yield value, box.left + at * wide, box.left + (at + count) * wide
        at += count


def _band(name: str, x: float, end: float, y: float, role: str) -> Iterator[str]:
    bar = {"class_": "gm-line", "fill": LIGHT.line}
    yield element("rect", x=x + 0.5, y=y, width=max(0.0, end - x - 1), height=14, rx=2, **bar)
    shown = next((s for s in (name, name[:3]) if fits(s, end - x - 4, 10)), "")
    if shown:
        yield text((x + end) / 2, y + 10.5, shown, role, size=10, text_anchor="middle")


def _boundaries(history: History, box: Box) -> Iterator[str]:
    for _, x, _end in list(_runs(_phases(history), box))[1:]:
        yield rule(x, box.top, x, box.bottom, "faint", stroke_dasharray="1.5 3")


def _pin(history: History, box: Box) -> Iterator[str]:
    at = history.peak_index
    x = box.left + (at + 0.5) * box.width / len(history.moments)
    y = box.y(history.moments[at].allocated_bytes)
    yield rule(x, box.top, x, box.bottom, "accent")
    yield rule(x, y, box.right + 30, y, "accent", stroke_dasharray="3 3")
    yield element("circle", cx=x, cy=y, r=4, class_="gm-accent", fill=LIGHT.accent)
