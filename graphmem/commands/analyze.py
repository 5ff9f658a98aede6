"""graphmem analyze."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from graphmem import collector
from graphmem.commands.arguments import add_run, add_subject, options_of, request_of
from graphmem.commands.compare import add_compare, comparison_of, snapshot_of
from graphmem.commands.formats import FORMATS, KINDS, Content
from graphmem.commands.output import add_output, kind_of, write
from graphmem.commands.serving import ONNXRUNTIME, add_serving, served, target_of
from graphmem.errors import ExitCode, UsageError, ValueNeededError
from graphmem.options import Options

if TYPE_CHECKING:
    from graphmem.report import Report
    from graphmem.schedule import Schedule
    from graphmem.sources import LoadedSubject


class Analyze:
    """The peak of GPU memory, the moment of the peak, and who holds it, layer by layer."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add_subject(parser)
        add_run(parser)
        parser.add_argument(
            "--target",
            help="cuda (default), cpu, or onnxruntime (default for inference of a model.onnx)",
        )
        add_serving(parser)
        group = add_output(parser, KINDS)
        group.add_argument("--depth", type=int, metavar="N", help="depth of the layers' table")
        group.add_argument(
            "--holders", type=int, default=10, metavar="N", help="largest holders to list (10)"
        )
        group.add_argument(
            "--timeline", action="store_true", help="every operation, in the JSON report"
        )
        add_compare(group)

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Analyze and print."""
        kind = _kind(arguments)
        arguments.target = target_of(arguments)
        snapshot = snapshot_of(arguments)
        with collector.off():
            report, schedule = traced(arguments)
            comparison = None
            if snapshot is not None:
                comparison = comparison_of(schedule, report, snapshot, arguments)
            content = _rendered(report, comparison, kind, arguments)
        write(content, arguments.output)
        return ExitCode.OK


def _kind(arguments: argparse.Namespace) -> str:
    """The kind of output, if it can be had with what else is asked."""
    kind = kind_of(arguments.format, arguments.output, KINDS)
    if arguments.timeline and kind != "json":
        raise UsageError("--timeline is part of the JSON report: add --format json")
    if kind not in FORMATS:
        return kind
    if arguments.compare is not None:
        raise UsageError(f"--compare: {kind} has no place for it; leave --format {kind} out")
    if not FORMATS[kind].is_text and arguments.output is None and sys.stdout.isatty():
        raise UsageError(f"--format {kind}: is no text; add -o FILE{FORMATS[kind].suffix}")
    return kind


def traced(arguments: argparse.Namespace) -> tuple[Report, Schedule]:
    """The report on the SUBJECT of parsed arguments, and the schedule that it is of.

    Args:
        arguments: those of ``add_subject``, ``add_run`` and ``add_serving``, with ``target``
            by ``target_of`` and ``timeline``.
    """
    from graphmem.sources import load_subject

    if arguments.target == ONNXRUNTIME:
        return served(arguments)
    options = options_of(arguments, arguments.target)
    subject = load_subject(arguments.subject, request_of(arguments, options))
    try:
        return _analyzed(subject, options, arguments)
    except ValueNeededError:
        # A value that the constructor computes, such as a table of positions.
        really = subject.with_values()
        if really is None:
            raise
        return _analyzed(really, options, arguments)


def _analyzed(
    subject: LoadedSubject, options: Options, arguments: argparse.Namespace
) -> tuple[Report, Schedule]:
    from graphmem.analysis import traced_call

    return traced_call(
        subject.model,
        (subject.args, subject.kwargs),
        options,
        optimizer=options.optimizer,
        kind=subject.kind,
        name=subject.name,
        timeline=arguments.timeline,
    )


def _rendered(
    report: Report, comparison: dict[str, Any] | None, kind: str, arguments: argparse.Namespace
) -> Content:
    from graphmem import render
    from graphmem.render.comparison import rendered

    if kind in FORMATS:
        return FORMATS[kind].make(report)
    if kind == "json":
        return render.as_json(report, comparison)
    shown = render.as_markdown if kind == "markdown" else render.as_text
    text = shown(report, depth=arguments.depth, holders=arguments.holders)
    if comparison is None:
        return text
    return f"{text}\n{rendered(comparison, kind, arguments.holders)}"
