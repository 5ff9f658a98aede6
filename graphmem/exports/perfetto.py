"""The predicted run as a trace that Perfetto and chrome://tracing show.

Operators, modules, phases and steps as slices, memory as counters, the peak as an instant. An
operation lasts one microsecond: nothing is known of time.

Source of the keys: the Trace Event Format (Chrome's), sections Complete, Counter, Instant and
Metadata Events; ui.perfetto.dev reads it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from graphmem.as_text import format_bytes
from graphmem.report import Report
from graphmem.report.history import History, Moment

_PROCESS = 1
_ROWS = ("steps", "phases", "modules", "operators")


def as_trace(report: Report) -> str:
    """The trace as JSON text.

    Raises:
        UsageError: of a report that was read from a file.
    """
    content = {
        "traceEvents": list(_events(report, report.history)),
        "displayTimeUnit": "ns",
        "otherData": {
            "graphmem": report.graphmem,
            "subject": report.subject.name,
            "time": "an operation lasts one microsecond: nothing is known of time",
        },
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"


def _events(report: Report, history: History) -> Iterator[dict[str, Any]]:
    yield _named("process_name", 0, report.subject.name)
    for row, name in enumerate(_ROWS, start=1):
        yield _named("thread_name", row, name)
        yield {**_named("thread_sort_index", row, ""), "args": {"sort_index": row}}
    yield from _slices(history, 1, lambda m: f"step {m.step}")
    yield from _slices(history, 2, lambda m: m.phase)
    yield from _slices(history, 3, lambda m: m.module)
    yield from map(_operator, history.moments)
    yield from _counters(history)
    yield _peak(report)


def _named(kind: str, row: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": _PROCESS, "tid": row, "name": kind, "args": {"name": name}}


def _slices(history: History, row: int, name: Callable[[Moment], str]) -> Iterator[dict[str, Any]]:
    """One slice for each run of operations of the same name."""
    steps = groupby(history.moments, key=lambda m: (m.step, name(m)))
    for _, group in steps:
        moments = list(group)
        yield {
            "ph": "X",
            "pid": _PROCESS,
            "tid": row,
            "name": name(moments[0]),
            "cat": moments[0].phase,
            "ts": moments[0].index,
            "dur": len(moments),
            "args": {"most_allocated_bytes": max(m.allocated_bytes for m in moments)},
        }


def _operator(moment: Moment) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": _PROCESS,
        "tid": len(_ROWS),
        "name": moment.op,
        "cat": moment.phase,
        "ts": moment.index,
        "dur": 1,
        "args": {
            "module": moment.module,
            "source": moment.source or "",
            "allocated_bytes": moment.allocated_bytes,
            "scratch_bytes": moment.scratch_bytes,
        },
    }


def _counters(history: History) -> Iterator[dict[str, Any]]:
    """The bytes of each category, where one changes, and those reserved."""
    used = {name: values for name, values in history.categories.items() if any(values)}
    before: tuple[int, ...] | None = None
    for moment, values in zip(history.moments, zip(*used.values(), strict=True), strict=True):
        if values != before:
            by_name = dict(zip(used, values, strict=True))
            yield _counter(moment, "allocated bytes by category", by_name)
        before = values
    last: int | None = None
    for moment in history.moments:
        if moment.reserved_bytes is not None and moment.reserved_bytes != last:
            yield _counter(moment, "reserved bytes", {"reserved": moment.reserved_bytes})
        last = moment.reserved_bytes


def _counter(moment: Moment, name: str, values: dict[str, int]) -> dict[str, Any]:
    return {"ph": "C", "pid": _PROCESS, "name": name, "ts": moment.index, "args": values}


def _peak(report: Report) -> dict[str, Any]:
    peak = report.peak
    return {
        "ph": "i",
        "s": "p",
        "pid": _PROCESS,
        "tid": len(_ROWS),
        "name": f"peak: {format_bytes(peak.allocated_bytes)} allocated",
        "ts": peak.op_index,
        "args": {"op": peak.op, "module": peak.module, "source": peak.source or ""},
    }
