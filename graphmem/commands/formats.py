"""What ``graphmem analyze`` can make of a report: a text for people, or a file for other tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphmem.commands.output import REPORT_KINDS
from graphmem.errors import UsageError

if TYPE_CHECKING:
    from graphmem.report import Report

Content = str | bytes


def _html(report: Report) -> Content:
    from graphmem.render.html import as_html

    return as_html(report)


def _svg(report: Report) -> Content:
    from graphmem.render.svg import as_svg

    return as_svg(report)


def _csv(report: Report) -> Content:
    from graphmem.exports import as_csv

    return as_csv(report)


def _snapshot(report: Report) -> Content:
    from graphmem.exports import pickled

    return pickled(report)


def _perfetto(report: Report) -> Content:
    from graphmem.exports import as_trace

    return as_trace(report)


def _onnx(report: Report) -> Content:
    from graphmem.exports import Notes
    from graphmem.sources.onnx.annotated import annotated

    if report.subject.kind != "onnx":
        raise UsageError("--format onnx: is a copy of model.onnx with notes; the SUBJECT is none")
    notes = Notes(report)
    return annotated(report.subject.name, notes.of_model(), notes.of_node)


@dataclass(frozen=True, slots=True)
class Format:
    """A file: its suffix, and what makes it of a report. ``is_text`` if a terminal can show it."""

    suffix: str
    make: Callable[[Report], Content]
    is_text: bool = True


FORMATS: Mapping[str, Format] = {
    "html": Format(".html", _html),
    "svg": Format(".svg", _svg),
    "csv": Format(".csv", _csv),
    "snapshot": Format(".pickle", _snapshot, is_text=False),
    "onnx": Format(".onnx", _onnx, is_text=False),
    "perfetto": Format(".trace.json", _perfetto),
}
"""The formats besides a table, Markdown and JSON, by name."""

KINDS: Mapping[str, str] = {
    **REPORT_KINDS,
    **{format_.suffix: name for name, format_ in FORMATS.items()},
}
"""Suffix of a file -> kind."""
