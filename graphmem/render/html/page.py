"""The page: a template with the style, the scripts and the report's numbers put in."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator
from importlib import resources
from string import Template
from typing import Any

from graphmem.as_text import format_bytes, format_tensor
from graphmem.render.facts import facts, peak_moment, unknown_item
from graphmem.render.html.data import history_data
from graphmem.render.html.marked import mark, marked
from graphmem.render.palette import DARK, LIGHT, STACK, ink
from graphmem.render.rows import automatic_depth
from graphmem.render.svg import as_svg
from graphmem.report import Report

_SCRIPTS = (
    "text.js",
    "data.js",
    "draw.js",
    "chart.js",
    "timeline.js",
    "moment.js",
    "table.js",
    "tables.js",
    "treemap.js",
    "memory.js",
    "page.js",
)
"""In the order in which they stand in the page: each uses only what stands before it."""

_MOST_RECTANGLES = 80
"""The modules that a category's rectangle may be divided into."""


def as_html(report: Report) -> str:
    """A report as one page that needs nothing else: no network, no other file.

    Raises:
        UsageError: of a report that was read from a file: it has no history of the run.
    """
    history = report.history
    title = f"{report.subject.name}: {format_bytes(report.peak.allocated_bytes)} at the peak"
    return Template(_asset("page.html")).substitute(
        title=html.escape(title),
        subject=html.escape(report.subject.name),
        moment=marked(peak_moment(report, mark)),
        facts="\n".join(_facts(report)),
        unknown="\n".join(_unknown(report)),
        made_by=html.escape(f"graphmem {report.graphmem}, torch {report.torch}"),
        picture=as_svg(report),
        style=f"{_colours()}\n{_asset('page.css')}",
        report=_json(report.to_dict()),
        history=_json({**history_data(history), **_shown(report)}),
        script="\n".join(map(_asset, _SCRIPTS)),
    )


def _asset(name: str) -> str:
    folder = resources.files("graphmem.render.html") / "assets"
    return folder.joinpath(name).read_text("utf-8")


def _shown(report: Report) -> dict[str, Any]:
    """What the page shows as the other renderers do: the depth of modules, tensors in short."""
    return {
        "depth": automatic_depth(report.layers, _MOST_RECTANGLES),
        "holders": [format_tensor(holder.dtype, holder.shape) for holder in report.holders],
    }


def _json(values: dict[str, Any]) -> str:
    """JSON that can't end the script element it stands in."""
    text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _colours() -> str:
    """The colours as CSS variables, each of both themes."""
    lines = [
        _both(name, getattr(LIGHT, name), getattr(DARK, name))
        for name in ("background", "text", "faint", "line", "accent")
    ]
    for at, name in enumerate(STACK):
        light, dark = LIGHT.categories[name], DARK.categories[name]
        lines += [_both(f"c{at}", light, dark), _both(f"i{at}", ink(light), ink(dark))]
    classes = [f".c{at} {{ --c: var(--c{at}); --i: var(--i{at}); }}" for at in range(len(STACK))]
    return "\n".join([":root {", *lines, "}", *classes])


def _both(name: str, light: str, dark: str) -> str:
    return f"  --{name}: light-dark({light}, {dark});"


def _facts(report: Report) -> Iterator[str]:
    for label, text in facts(report, mark):
        yield f"<div><dt>{html.escape(label)}</dt><dd>{marked(text)}</dd></div>"


def _unknown(report: Report) -> Iterator[str]:
    for item in report.unknown:
        yield f"<li>{marked(unknown_item(item, mark))}</li>"
