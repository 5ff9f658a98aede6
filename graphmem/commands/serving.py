"""What the commands do for ``--target onnxruntime``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from graphmem.commands.arguments import options_of, positive, request_of
from graphmem.errors import UsageError
from graphmem.options import nearest

if TYPE_CHECKING:
    from graphmem.report import Report
    from graphmem.schedule import Schedule
    from graphmem.serving.settings import ServeSettings

ONNXRUNTIME = "onnxruntime"
_STRATEGIES = ("kNextPowerOfTwo", "kSameAsRequested")


def add_serving(parser: argparse.ArgumentParser) -> None:
    """How ONNX Runtime serves the model."""
    group = parser.add_argument_group("ONNX Runtime (--target onnxruntime)")
    group.add_argument(
        "--no-ort-optimize",
        action="store_true",
        help="plan the file as it is, not what ONNX Runtime makes of it",
    )
    group.add_argument(
        "--threads",
        type=positive,
        default=1,
        metavar="N",
        help="intra_op_num_threads (1): some kernels have a buffer for each",
    )
    group.add_argument(
        "--no-mem-pattern", action="store_true", help="SessionOptions.enable_mem_pattern off"
    )
    group.add_argument(
        "--arena-extend-strategy",
        default=_STRATEGIES[0],
        metavar="NAME",
        help=f"{_STRATEGIES[0]} (default) or {_STRATEGIES[1]}",
    )
    group.add_argument("--gpu-mem-limit", metavar="SIZE", help="the most that the arena may hold")


def target_of(arguments: argparse.Namespace) -> str:
    """``--target``; by default onnxruntime for the inference of a model.onnx, else cuda."""
    if arguments.target is not None:
        return str(arguments.target)
    is_onnx = Path(arguments.subject).suffix.lower() == ".onnx"
    plain = arguments.mode in (None, "inference") and arguments.precision is None
    return ONNXRUNTIME if is_onnx and plain and arguments.device is None else "cuda"


def settings_of(arguments: argparse.Namespace) -> ServeSettings:
    """How the model is served.

    Raises:
        UsageError: an unknown strategy, or a limit that is no size.
    """
    from graphmem.allocator.bfc import ArenaSettings, ExtendStrategy
    from graphmem.options import parse_bytes
    from graphmem.ort import RunSettings
    from graphmem.serving.settings import ServeSettings

    strategy = arguments.arena_extend_strategy
    if strategy not in _STRATEGIES:
        raise UsageError(
            f"--arena-extend-strategy {strategy}: not one of {', '.join(_STRATEGIES)}"
            f"{nearest(strategy, _STRATEGIES)}"
        )
    limit = arguments.gpu_mem_limit
    arena = ArenaSettings(
        strategy=ExtendStrategy(strategy),
        limit=None if limit is None else parse_bytes(limit, "--gpu-mem-limit"),
    )
    return ServeSettings(
        optimize=not arguments.no_ort_optimize,
        threads=arguments.threads,
        run=RunSettings(mem_pattern=not arguments.no_mem_pattern, arena=arena),
    )


def served(arguments: argparse.Namespace) -> tuple[Report, Schedule]:
    """The report of ``graphmem analyze``."""
    from graphmem.analysis import torch_version
    from graphmem.serving.report import report_on
    from graphmem.serving.session import serve

    options = options_of(arguments, ONNXRUNTIME)
    session = serve(
        arguments.subject, request_of(arguments, options), options, settings_of(arguments)
    )
    shown = {name: options.to_dict()[name] for name in ("mode", "target", "trip_count")}
    shown |= {"ort_optimize": not arguments.no_ort_optimize, "threads": arguments.threads}
    return report_on(session, options, shown, torch_version(), arguments.timeline)
