"""graphmem plan."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from graphmem import collector
from graphmem.commands.arguments import add_run, add_subject, options_of, positive, request_of
from graphmem.commands.max_batch import add_budget, budget_of
from graphmem.commands.output import REPORT_KINDS, add_output, kind_of, write
from graphmem.commands.progress import Progress
from graphmem.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from graphmem.options import Options
    from graphmem.plans import Plan
    from graphmem.schedule import Schedule

_TRACES = 8
"""What a plan takes about, for the progress bar."""


class PlanCommand:
    """What to change so that a training fits on a GPU, each change simulated, the cheapest first.

    The options that are given stay as they are; what can be changed besides is tried.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add_subject(parser)
        add_run(parser)
        group = parser.add_argument_group("plan")
        add_budget(group)
        group.add_argument(
            "--gpus",
            type=positive,
            metavar="N",
            help="how many GPUs there are (one; more are the last resort)",
        )
        group.add_argument(
            "--enough", type=positive, default=5, metavar="N", help="ways to find (5)"
        )
        group.add_argument(
            "--seconds", type=float, default=35.0, metavar="S", help="no trace begins later (35)"
        )
        add_output(parser, REPORT_KINDS)

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Search and print."""
        from graphmem.render.plan import rendered

        kind = kind_of(arguments.format, arguments.output, REPORT_KINDS)
        with collector.off():
            plan = _made(arguments)
        write(rendered(plan.to_dict(), kind), arguments.output)
        return ExitCode.OK if plan else ExitCode.FAILED


def _made(arguments: argparse.Namespace) -> Plan:
    from graphmem.instantiate import record_subject
    from graphmem.largest import Memory
    from graphmem.plans import made
    from graphmem.trace.run import model_dtype

    if arguments.compile:
        raise UsageError("--compile is for graphmem analyze: a plan is of the eager run")
    budget = budget_of(arguments)
    options = options_of(arguments, "cuda")
    request = request_of(arguments, options)

    def trace(changed: Options, parts: int) -> Schedule:
        batch = request.batch if parts == 1 else (request.batch or parts) // parts
        asked = replace(request, batch=batch, dtype=model_dtype(changed))
        return record_subject(arguments.subject, asked, changed).schedule

    with Progress(_TRACES, "traces") as progress:
        return made(
            arguments.subject,
            trace,
            Memory(options, budget),
            arguments.gpus,
            arguments.batch,
            arguments.enough,
            arguments.seconds,
            progress.step,
        )
