"""graphmem max-batch."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from graphmem import collector
from graphmem.commands.arguments import add_run, add_subject, options_of, positive, request_of
from graphmem.commands.output import REPORT_KINDS, add_output, kind_of, write
from graphmem.commands.progress import Progress
from graphmem.errors import ExitCode, UsageError
from graphmem.options import parse_bytes

if TYPE_CHECKING:
    from graphmem.largest import MaxBatch

_TRACES = 5
"""What a search takes where all sizes follow from the first three."""


class MaxBatchCommand:
    """The largest batch, or another size, that fits on a GPU, and what stops the next one.

    ``--dim NAME`` without a size names what is searched: batch (default), seq, a free dimension
    of model.onnx, or a name that stands for a size in --input, as in 8x3xSIZExSIZE.
    """

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add_subject(parser)
        add_run(parser)
        group = parser.add_argument_group("search")
        add_budget(group)
        group.add_argument(
            "--multiple-of",
            type=positive,
            metavar="N",
            help="only multiples of N (1 of a batch, 64 of other sizes)",
        )
        add_output(parser, REPORT_KINDS)

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Search and print."""
        from graphmem.render.largest import rendered

        kind = kind_of(arguments.format, arguments.output, REPORT_KINDS)
        with collector.off():
            answer = _found(arguments)
        write(rendered(answer.to_dict(), kind), arguments.output)
        return ExitCode.OK if answer.size else ExitCode.FAILED


def add_budget(group: argparse._ArgumentGroup) -> None:
    """``--budget``, of the commands that make something fit."""
    group.add_argument(
        "--budget", metavar="SIZE", help="bytes for PyTorch's allocator, such as 20GiB"
    )


def budget_of(arguments: argparse.Namespace) -> int | None:
    """The budget in bytes.

    Raises:
        UsageError: if there is neither a budget nor a device.
    """
    if arguments.budget is None and arguments.device is None:
        raise UsageError("into what? add --device GPU, or --budget SIZE such as 20GiB")
    return None if arguments.budget is None else parse_bytes(arguments.budget, "--budget")


def _found(arguments: argparse.Namespace) -> MaxBatch:
    from graphmem.instantiate import record_subject
    from graphmem.largest import Memory, largest, requests

    if arguments.compile:
        raise UsageError("--compile is for graphmem analyze: the search is of the eager run")
    name = _dimension(arguments)
    budget = budget_of(arguments)
    options = options_of(arguments, "cuda")
    sized = requests(arguments.subject, request_of(arguments, options), name)
    with Progress(_TRACES, "traces") as progress:
        return largest(
            arguments.subject,
            lambda size: record_subject(arguments.subject, sized(size), options),
            Memory(options, budget),
            name,
            arguments.multiple_of,
            lambda size: progress.step(f"{name} {size}"),
        )


def _dimension(arguments: argparse.Namespace) -> str:
    """The dimension without a size, which is taken out of ``--dim``."""
    names = [text for text in arguments.dim if "=" not in text]
    if len(names) > 1:
        raise UsageError(f"--dim: one dimension is searched, not {', '.join(names)}")
    arguments.dim = [text for text in arguments.dim if "=" in text]
    return str(names[0]) if names else "batch"
