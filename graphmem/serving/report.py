"""The report on a simulated session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from graphmem.options import Options
from graphmem.ort import Run
from graphmem.ort.bound import Interval, best_arena
from graphmem.report import Arena, ArenaRun, Report, Subject
from graphmem.schedule import Schedule
from graphmem.serving.gpu import on_gpu
from graphmem.serving.schedule import schedule_of
from graphmem.serving.session import Served
from graphmem.summary import summarize


def report_on(
    served: Served,
    options: Options,
    created_from: Mapping[str, Any],
    torch_version: str,
    timeline: bool = False,
) -> tuple[Report, Schedule]:
    """The report, and the schedule that it is of.

    Its peak is of all that the session holds: initializers outside of the arena, and the arena
    with the blocks in use; ``arena`` has the arena's own figures, of the first and later runs.
    """
    schedule, placement = schedule_of(served)
    weights = served.assembled.weights.values()
    count = sum(weight.numel for weight in weights)
    subject = Subject("onnx", served.path, count, 0, served.inputs)
    report = summarize(schedule, subject, options, created_from, torch_version, timeline, placement)
    report = replace(report, arena=arena_of(served))
    if served.cuda is not None:
        report = on_gpu(report, served.cuda, options, served.limit)
    return report, schedule


def arena_of(served: Served) -> Arena:
    """The arena's own figures."""
    first, later = served.runs[0], served.runs[-1]
    best = best_arena(
        [
            Interval(block.nbytes, block.born, max(block.used, block.born))
            for block in first.blocks
            if not block.is_scratch and not block.is_pattern
        ]
    )
    resting = sum(h.setup.nbytes for h in served.assembled.held if h.setup.stays)
    made = served.assembled.execution
    return Arena(
        first_run=_figures(first),
        later_runs=_figures(later),
        outputs_bytes=sum(made.nbytes.values()),
        resting_bytes=resting,
        best_bytes=resting + best.packed,
    )


def _figures(run: Run) -> ArenaRun:
    peak = max(range(len(run.moments)), key=lambda at: run.moments[at].in_use, default=None)
    return ArenaRun(
        requested_peak_bytes=run.requested,
        in_use_peak_bytes=run.in_use,
        arena_bytes=run.held,
        node="" if peak is None else run.moments[peak].node,
        op="" if peak is None else run.moments[peak].op,
    )
