"""graphmem verify."""

from __future__ import annotations

import argparse

from graphmem.commands.arguments import add_run, add_subject, options_of, request_of
from graphmem.commands.output import REPORT_KINDS, add_output, kind_of, write
from graphmem.commands.serving import ONNXRUNTIME, add_serving, settings_of, target_of
from graphmem.errors import ExitCode, UsageError

TOLERANCE_BYTES = 64
"""A smaller difference is that of scalars: a kernel that converts a Python number takes a
few bytes for it, on the CPU only."""


TOLERANCE = 0.01
"""Of a peak in ONNX Runtime's arena."""


class Verify:
    """Run the step for real beside the prediction: both peaks, and why they differ."""

    def prepare_parser(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add_subject(parser)
        add_run(parser)
        parser.add_argument(
            "--target",
            help="cpu (default): real CPU tensors; onnxruntime (default for inference of a "
            "model.onnx): its CPU provider and the profile of its arena",
        )
        parser.add_argument(
            "--tolerance",
            type=int,
            metavar="BYTES",
            help="exit with 1 if an unexplained difference is larger "
            f"({TOLERANCE_BYTES}; of onnxruntime 1 %% of each peak)",
        )
        add_serving(parser)
        group = add_output(parser, REPORT_KINDS)
        group.add_argument(
            "--nodes", action="store_true", help="of onnxruntime: both sides node by node"
        )

    def run(self, arguments: argparse.Namespace) -> ExitCode:
        """Predict, measure and compare."""
        kind = kind_of(arguments.format, arguments.output, REPORT_KINDS)
        target = target_of(arguments)
        if arguments.target is None and target != ONNXRUNTIME:
            target = "cpu"
        if target == ONNXRUNTIME:
            return _verify_serving(arguments, kind)
        if target != "cpu":
            raise UsageError(
                f"--target {target}: this version verifies on real CPU tensors only, and a "
                "model.onnx in ONNX Runtime; use --target cpu or onnxruntime"
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
        tolerance = TOLERANCE_BYTES if arguments.tolerance is None else arguments.tolerance
        failed = abs(result.unexplained_bytes) > tolerance
        return ExitCode.FAILED if failed else ExitCode.OK


def _verify_serving(arguments: argparse.Namespace, kind: str) -> ExitCode:
    """Run the model in ONNX Runtime beside its prediction."""
    from graphmem.measure.ort import verify_serving
    from graphmem.measure.processor import has_amx
    from graphmem.render.serving import rendered
    from graphmem.serving.session import serve

    options = options_of(arguments, ONNXRUNTIME)
    arguments.amx = has_amx() if arguments.amx is None else arguments.amx
    settings = settings_of(arguments)
    session = serve(arguments.subject, request_of(arguments, options), options, settings)
    result = verify_serving(session, settings)
    text = rendered(result.to_dict(nodes=arguments.nodes), arguments.subject, kind)
    write(text, arguments.output)
    if arguments.tolerance is not None:
        return ExitCode.FAILED if result.worst_bytes > arguments.tolerance else ExitCode.OK
    return ExitCode.FAILED if result.worst > TOLERANCE else ExitCode.OK
