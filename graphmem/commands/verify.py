"""graphmem verify."""

from __future__ import annotations

import argparse

from graphmem.commands.arguments import (
    REPORT_KINDS,
    add_output,
    add_run,
    add_subject,
    kind_of,
    options_of,
    request_of,
    write,
)
from graphmem.errors import ExitCode, UsageError

TOLERANCE_BYTES = 64
"""A smaller difference is that of scalars: a kernel that converts a Python number takes a
few bytes for it, on the CPU only."""


class Verify:
    """Run the step for real beside the prediction: both peaks, and why they differ."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add_subject(parser)
        add_run(parser)
        parser.add_argument("--target", default="cpu", help="cpu: real CPU tensors")
        parser.add_argument(
            "--tolerance",
            type=int,
            default=TOLERANCE_BYTES,
            metavar="BYTES",
            help=f"exit with 1 if an unexplained difference is larger ({TOLERANCE_BYTES})",
        )
        add_output(parser, REPORT_KINDS)

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Predict, measure and compare."""
        kind = kind_of(arguments.format, arguments.output, REPORT_KINDS)
        if arguments.target != "cpu":
            raise UsageError(
                f"--target {arguments.target}: this version verifies on real CPU tensors only; "
                "use --target cpu"
            )
        from graphmem.measure.cpu import verify_call
        from graphmem.render.verification import rendered
        from graphmem.sources import load_subject

        options = options_of(arguments, "cpu")
        subject = load_subject(arguments.subject, request_of(arguments, options))
        if subject.rebuild_really is not None:
            subject = subject.rebuild_really()
        result = verify_call(
            subject.model,
            (subject.args, subject.kwargs),
            options,
            optimizer=options.optimizer,
        )
        write(rendered(result.to_dict(), subject.name, kind), arguments.output)
        failed = abs(result.unexplained_bytes) > arguments.tolerance
        return ExitCode.FAILED if failed else ExitCode.OK
