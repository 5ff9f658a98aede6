"""graphmem estimate."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from graphmem import collector
from graphmem.commands.arguments import add_run, add_subject, options_of, positive, request_of
from graphmem.commands.output import REPORT_KINDS, add_output, kind_of, write
from graphmem.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from graphmem.textbook import Estimate

_OF_FORMULA = (
    *("params", "precision", "optimizer", "master_weights", "batch", "seq", "hidden", "layers"),
    *("activation_bytes", "activation_factor", "temporary_share", "headroom"),
)
"""The arguments that the formula reads; all others are of a simulated run."""
_OF_COMMAND = ("subject", "format", "output")


class EstimateCommand:
    """The textbook's formula from numbers alone, or beside the simulated run of SUBJECT."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        parser.conflict_handler = "resolve"  # the headroom here may be a share too
        add_subject(parser, optional=True)
        add_run(parser)
        parser.add_argument("--target", default="cuda", help="cuda (default) or cpu")
        _add_formula(parser.add_argument_group("the textbook's formula"))
        add_output(parser, REPORT_KINDS)
        self._parser = parser

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Estimate and print."""
        from graphmem.render.estimate import rendered

        kind = kind_of(arguments.format, arguments.output, REPORT_KINDS)
        with collector.off():
            made = self._of_numbers(arguments) if arguments.subject is None else _beside(arguments)
        write(rendered(made.to_dict(), kind), arguments.output)
        return ExitCode.OK

    def _of_numbers(self, arguments: argparse.Namespace) -> Estimate:
        from graphmem.textbook import estimate

        given = {name: value for name, value in vars(arguments).items() if name not in _OF_COMMAND}
        run = {
            name: value
            for name, value in given.items()
            if name not in _OF_FORMULA and value != self._parser.get_default(name)
        }
        return estimate(**{name: given[name] for name in _OF_FORMULA}, **run)


def _add_formula(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--params", metavar="N", help="such as 7e9 or 7B; else those of SUBJECT")
    group.add_argument("--hidden", type=positive, metavar="N", help="elements of a token")
    group.add_argument("--layers", type=positive, metavar="N", help="how many")
    group.add_argument(
        "--activation-bytes", metavar="SIZE", help="of one layer, such as 50MB: the quick formula"
    )
    group.add_argument(
        "--activation-factor",
        metavar="F",
        help="tensors of batch x seq x hidden that a layer keeps (3)",
    )
    group.add_argument(
        "--temporary-share",
        metavar="S",
        help="of the other terms (0.15), in the quick formula of the activations",
    )
    group.add_argument(
        "--headroom", metavar="SIZE", default=0, help="to stay free: 2GiB, or 20%% of the GPU"
    )


def _beside(arguments: argparse.Namespace) -> Estimate:
    from graphmem.analysis import traced_call
    from graphmem.sources import load_subject
    from graphmem.textbook.api import numbers_of, of_report

    numbers = numbers_of(**{n: getattr(arguments, n) for n in _OF_FORMULA if n != "headroom"})
    headroom, arguments.headroom = arguments.headroom, None
    options = options_of(arguments, arguments.target)
    if options.mode != "training":
        raise UsageError("estimate: the textbook's formula is of a training step")
    subject = load_subject(arguments.subject, request_of(arguments, options))
    call: Any = (subject.args, subject.kwargs)
    report, _ = traced_call(
        subject.model,
        call,
        options,
        optimizer=options.optimizer,
        kind=subject.kind,
        name=subject.name,
    )
    return of_report(numbers, report, getattr(subject.model, "config", None), headroom)
