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
_PROVIDERS = ("cpu", "cuda")


def add_serving(parser: argparse.ArgumentParser) -> None:
    """How ONNX Runtime serves the model."""
    group = parser.add_argument_group("ONNX Runtime (--target onnxruntime)")
    group.add_argument(
        "--provider",
        metavar="NAME",
        help="cpu, or cuda: what a session with the CUDA provider holds of the GPU (default: "
        "cuda with --device or --ort-option, else cpu)",
    )
    group.add_argument(
        "--ort-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the CUDA provider by ONNX Runtime's own name, such as "
        "gpu_mem_limit=4GiB, arena_extend_strategy=kSameAsRequested or "
        "cudnn_conv_algo_search=HEURISTIC (repeatable)",
    )
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
        "--no-prepacking",
        action="store_true",
        help="session.disable_prepacking on: no kernel keeps a packed copy of its weights",
    )
    group.add_argument(
        "--arena-extend-strategy",
        metavar="NAME",
        help="kNextPowerOfTwo (default) or kSameAsRequested",
    )
    group.add_argument(
        "--amx",
        action=argparse.BooleanOptionalAction,
        help="the processor that serves has AMX, whose kernels pack some weights of bytes "
        "otherwise (off; verify looks at its own)",
    )
    group.add_argument("--gpu-mem-limit", metavar="SIZE", help="the most that the arena may hold")


def target_of(arguments: argparse.Namespace) -> str:
    """``--target``; by default onnxruntime for the inference of a model.onnx, else cuda.

    ``--device`` alone asks for PyTorch's memory of that GPU; with a provider or one of its
    options, for ONNX Runtime's.
    """
    if arguments.target is not None:
        return str(arguments.target)
    is_onnx = Path(arguments.subject).suffix.lower() == ".onnx"
    plain = arguments.mode in (None, "inference") and arguments.precision is None
    asked = arguments.provider is not None or arguments.ort_option or arguments.device is None
    return ONNXRUNTIME if is_onnx and plain and asked else "cuda"


def settings_of(arguments: argparse.Namespace) -> ServeSettings:
    """How the model is served.

    Raises:
        UsageError: an unknown provider, strategy or option, or a limit that is no size.
    """
    from graphmem.allocator.bfc import ArenaSettings, ExtendStrategy
    from graphmem.options import parse_bytes
    from graphmem.ort import RunSettings
    from graphmem.serving.settings import Provider, ServeSettings, strategy_of, with_options

    strategy, limit = arguments.arena_extend_strategy, arguments.gpu_mem_limit
    arena = ArenaSettings(
        strategy=ExtendStrategy.NEXT_POWER_OF_TWO
        if strategy is None
        else strategy_of(strategy, "--arena-extend-strategy"),
        limit=None if limit is None else parse_bytes(limit, "--gpu-mem-limit"),
    )
    settings = ServeSettings(
        optimize=not arguments.no_ort_optimize,
        threads=arguments.threads,
        packs=not arguments.no_prepacking,
        run=RunSettings(mem_pattern=not arguments.no_mem_pattern, arena=arena),
        provider=Provider(_provider(arguments)),
        has_amx=bool(arguments.amx),
    )
    return with_options(settings, arguments.ort_option)


def _provider(arguments: argparse.Namespace) -> str:
    """``--provider``; by default that of what else was asked for."""
    asked: str | None = arguments.provider
    if asked is None:
        return "cuda" if arguments.ort_option or arguments.device is not None else "cpu"
    if asked not in _PROVIDERS:
        raise UsageError(
            f"--provider {asked}: not one of {', '.join(_PROVIDERS)}{nearest(asked, _PROVIDERS)}"
        )
    if asked == "cpu" and arguments.ort_option:
        raise UsageError(
            f"--ort-option {arguments.ort_option[0]}: options are of the CUDA provider; leave "
            "--provider cpu out"
        )
    if asked == "cpu" and arguments.device is not None:
        raise UsageError(f"--device {arguments.device}: a GPU does not go with --provider cpu")
    return asked


def served(arguments: argparse.Namespace) -> tuple[Report, Schedule]:
    """The report of ``graphmem analyze``."""
    from graphmem.analysis import torch_version
    from graphmem.serving.report import report_on
    from graphmem.serving.session import serve

    options = options_of(arguments, ONNXRUNTIME)
    settings = settings_of(arguments)
    session = serve(arguments.subject, request_of(arguments, options), options, settings)
    shown = {name: options.to_dict()[name] for name in ("mode", "target", "trip_count")}
    shown |= {"ort_optimize": settings.optimize, "threads": settings.threads}
    shown |= {} if settings.packs else {"prepacking": False}
    shown |= {"amx": True} if settings.has_amx else {}
    shown |= {"provider": str(settings.provider)}
    if settings.cuda.given:
        shown |= {"ort_options": dict(settings.cuda.given)}
    return report_on(session, options, shown, torch_version(), arguments.timeline)
