"""The picture: the timeline, and beside and below it who holds the peak."""

from __future__ import annotations

from collections.abc import Iterator

from graphmem.as_text import format_bytes, format_share, shorten
from graphmem.render.facts import category_name, peak_moment
from graphmem.render.palette import LIGHT, STACK
from graphmem.render.svg.elements import FONT, element, halo, rule, style, text, words
from graphmem.render.svg.peak import column, modules
from graphmem.render.svg.timeline import Box, timeline
from graphmem.report import Report

_WIDTH, _HEIGHT = 960, 556
_LEFT, _TOP = 66.0, 104.0
_TIMELINE_WIDTH, _TIMELINE_HEIGHT = 640.0, 268.0
_COLUMN, _COLUMN_WIDTH = 736.0, 34.0
_MODULES, _MODULES_HEIGHT = 428.0, 76.0
_RIGHT = 936.0
_ABOVE = 1.08
"""How much higher than what is reserved the axis goes."""

_MOST_CAPACITY = 1.6
"""A GPU's capacity is drawn where it is less than this many times as high as what is reserved."""


def as_svg(report: Report) -> str:
    """A report as a picture: valid XML, with a title and a description in words.

    Raises:
        UsageError: of a report that was read from a file: it has no history of the run.
    """
    content = "\n".join(_content(report))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-labelledby="gm-title gm-desc" '
        f'font-family="{FONT}">\n{content}\n</svg>\n'
    )


def _content(report: Report) -> Iterator[str]:
    history = report.history
    size = format_bytes(report.peak.allocated_bytes)
    yield element("title", words(f"{report.subject.name}: {size} at the peak"), id="gm-title")
    yield element("desc", words(_description(report)), id="gm-desc")
    yield style()
    card = {"class_": "gm-card", "fill": LIGHT.background}
    yield element("rect", width=_WIDTH, height=_HEIGHT, rx=8, **card)
    yield from _heading(report)
    box = Box(_LEFT, _TOP, _TIMELINE_WIDTH, _TIMELINE_HEIGHT, _most(report))
    yield from timeline(history, box)
    yield from _capacity(report, box)
    beside = Box(_COLUMN, _TOP, _COLUMN_WIDTH, _TIMELINE_HEIGHT, box.most)
    yield from column(report, beside, _RIGHT - _COLUMN - _COLUMN_WIDTH)
    yield text(_LEFT, _MODULES - 9, "the same bytes at the peak, by module", "text", size=11.5)
    below = Box(_LEFT, _MODULES, _RIGHT - _LEFT, _MODULES_HEIGHT, box.most)
    yield from modules(report, history, below)
    yield text(24, _HEIGHT - 14, _legend(report), size=10)


def _most(report: Report) -> float:
    """The bytes at the top of the axis."""
    held = _held(report)
    capacity = _capacity_bytes(report)
    if capacity is not None and capacity < held * _MOST_CAPACITY:
        held = max(held, capacity)
    return max(1, held) * _ABOVE


def _held(report: Report) -> int:
    return max(report.peak.allocated_bytes, report.peak.reserved_bytes or 0)


def _capacity_bytes(report: Report) -> int | None:
    return None if report.device is None else int(report.device["capacity_bytes"])


def _heading(report: Report) -> Iterator[str]:
    size = format_bytes(report.peak.allocated_bytes)
    yield text(24, 30, f"{size} at the peak", "text", size=19, font_weight=600)
    name = shorten(report.subject.name, 62)
    yield text(_RIGHT, 30, name, size=12, text_anchor="end")
    yield text(24, 50, shorten(peak_moment(report), 150), size=12)


def _capacity(report: Report, box: Box) -> Iterator[str]:
    capacity = _capacity_bytes(report)
    if report.device is None or capacity is None or capacity > box.most:
        return
    y = box.y(capacity)
    yield rule(box.left, y, box.right, y, "accent", stroke_width=1.5, stroke_dasharray="8 4")
    name = f"{report.device['name']}, {format_bytes(capacity)}"
    yield text(box.left + 6, y - 5, name, "accent", size=10.5, font_weight=600, **halo())


def _legend(report: Report) -> str:
    lines = ["areas: allocated, while each operation runs"]
    if report.peak.reserved_bytes is not None:
        lines.append(f"dashed: reserved, at most {format_bytes(report.peak.reserved_bytes)}")
    capacity = _capacity_bytes(report)
    if report.device is not None and capacity is not None and capacity > _most(report):
        lines.append(f"{report.device['name']} has {format_bytes(capacity)}, above this picture")
    return "; ".join([*lines, f"graphmem {report.graphmem}"])


def _description(report: Report) -> str:
    """The picture in words."""
    total = report.peak.allocated_bytes
    held = sorted(((report.breakdown[name], name) for name in STACK), reverse=True)
    parts = [
        f"{category_name(name)} {format_bytes(size)} ({format_share(size, total)})"
        for size, name in held
        if size
    ]
    return (
        f"Live bytes of {report.subject.name} over the operations of its run, stacked by category, "
        f"with its steps and phases. The peak is {format_bytes(total)}, {peak_moment(report)}. "
        f"It holds {', '.join(parts)}."
    )
