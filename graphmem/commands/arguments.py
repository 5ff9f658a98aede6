"""The arguments that several commands share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmem.commands.adapters import adapters_of, add_adapters
from graphmem.commands.parallelism import add_parallelism, parallelism_of
from graphmem.commands.techniques import add_techniques, techniques_of
from graphmem.errors import UsageError
from graphmem.options import Options

if TYPE_CHECKING:
    from graphmem.sources import InputRequest


def add_subject(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """SUBJECT and its inputs."""
    subject = parser.add_argument(
        "subject",
        metavar="SUBJECT",
        nargs="?" if optional else None,
        help="package.module:factory, file.py:factory, timm:NAME, torchvision:NAME, "
        "hf:CONFIG.json or hf:DIR, model.onnx or program.pt2",
    )
    completed_by_files(subject)
    add_inputs(parser)


def completed_by_files(argument: argparse.Action) -> None:
    """Have a shell offer files for an argument (``graphmem completion``, by shtab)."""
    argument.complete = {  # type: ignore[attr-defined]  # where shtab looks for it
        "bash": "_shtab_compgen_files",
        "zsh": "_files",
        "tcsh": "f",
    }


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """The inputs of a SUBJECT."""
    group = parser.add_argument_group("inputs")
    group.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]SHAPE[:DTYPE][=VALUE]",
        help="an input, such as 32x3x224x224 or mask=8x128:int64=1; may be repeated",
    )
    group.add_argument("--batch", type=positive, metavar="N", help="the batch size")
    group.add_argument("--seq", type=positive, metavar="N", help="the sequence length")
    group.add_argument("--task", help="the head of a transformers model, such as causal-lm")
    group = parser.add_argument_group("inputs of model.onnx")
    group.add_argument(
        "--dim",
        action="append",
        default=[],
        metavar="NAME=N",
        help="a free dimension, such as batch=8; may be repeated",
    )
    group.add_argument(
        "--default-dim", type=positive, metavar="N", help="all free dimensions not given"
    )
    group.add_argument(
        "--rules", metavar="FILE.py", help="your own operators, by graphmem.onnx_rule"
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """How the model is run."""
    group = parser.add_argument_group("run")
    group.add_argument("--mode", help="training (default) or inference (default of a model.onnx)")
    group.add_argument(
        "--optimizer",
        default="adamw",
        metavar="NAME",
        help="any of torch.optim (adamw), or adamw8bit, paged_adamw8bit, lion, adam_mini, "
        "muon+adamw, ao_adamw4bit and others; with arguments as in 'sgd(momentum=0.9)'",
    )
    group.add_argument(
        "--foreach", action=argparse.BooleanOptionalAction, help="PyTorch's choice by default"
    )
    group.add_argument(
        "--fused", action=argparse.BooleanOptionalAction, help="PyTorch's choice by default"
    )
    group.add_argument("--precision", help="fp32, bf16, fp16, amp-bf16 or amp-fp16")
    group.add_argument(
        "--master-weights",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="with bf16 or fp16: the optimizer works on fp32 copies of the parameters",
    )
    group.add_argument(
        "--accumulate", type=positive, default=1, metavar="N", help="micro-batches per step (1)"
    )
    group.add_argument("--clip-grad-norm", type=float, metavar="NORM", help="clip gradients")
    group.add_argument(
        "--zero-grad",
        choices=("none", "zero"),
        default="none",
        help="gradients between steps: set to none (default) or filled with zeros",
    )
    group.add_argument("--steps", type=positive, default=2, metavar="N", help="steps (2)")
    group.add_argument(
        "--grad",
        default="no_grad",
        help="of an inference: no_grad (default), inference_mode or enabled",
    )
    group.add_argument(
        "--device",
        metavar="GPU",
        help="such as A100-80GB: its kernels, and whether it fits (graphmem devices lists all)",
    )
    group.add_argument(
        "--headroom", metavar="SIZE", help="what is to stay free of its memory, such as 2GiB"
    )
    group.add_argument(
        "--alloc-conf",
        metavar="SETTINGS",
        help="of the caching allocator, in PyTorch's syntax: expandable_segments:True,...",
    )
    group.add_argument(
        "--trip-count",
        type=positive,
        metavar="N",
        help="how often a loop runs whose count depends on data",
    )
    group.add_argument(
        "--moe-routing",
        default="balanced",
        metavar="WHICH",
        help="of a mixture of experts: balanced (default) or worst, nearly all to the same",
    )
    group.add_argument(
        "--assume",
        action="append",
        default=[],
        type=_assumed,
        metavar="FILE.py:LINE=VALUE",
        help="what holds at a line that asks for a value which nobody has; may be repeated",
    )
    group.add_argument(
        "--compile", action="store_true", help="also what it takes under torch.compile"
    )
    group.add_argument(
        "--strict", action="store_true", help="refuse whatever would have to be assumed"
    )
    add_techniques(parser)
    add_adapters(parser)
    add_parallelism(parser)


def positive(text: str) -> int:
    """The whole number of 1 or more that an argument is."""
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return value


def _assumed(text: str) -> tuple[str, bool | int | float]:
    """The line and the value of ``model.py:12=3``."""
    line, _, value = text.rpartition("=")
    if value.lower() in ("true", "false"):
        return line, value.lower() == "true"
    try:
        return line, int(value) if value.lstrip("-").isdecimal() else float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not FILE.py:LINE=VALUE, such as model.py:12=true or model.py:12=3"
        ) from None


def options_of(arguments: argparse.Namespace, target: str) -> Options:
    """The options that the arguments name.

    Raises:
        UsageError: naming the option, with the nearest choice.
    """
    from graphmem.resolve import make_options
    from graphmem.trace.optimizers import find_optimizer

    find_optimizer(arguments.optimizer)
    if arguments.headroom is not None and arguments.device is None:
        raise UsageError("--headroom: of which GPU's memory? add --device")
    return make_options(
        mode=arguments.mode or _default_mode(arguments.subject),
        target=target,
        precision=arguments.precision,
        device=arguments.device,
        compile=arguments.compile,
        **run_of(arguments),
    )


def run_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """How the model is run, by the names of options: what a sweep has one of for all its cases."""
    return {
        "master_weights": arguments.master_weights,
        "optimizer": arguments.optimizer,
        "foreach": arguments.foreach,
        "fused": arguments.fused,
        "set_to_none": arguments.zero_grad == "none",
        "clip_grad_norm": arguments.clip_grad_norm,
        "accumulate": arguments.accumulate,
        "steps": arguments.steps,
        "grad": arguments.grad,
        "strict": arguments.strict,
        "alloc_conf": arguments.alloc_conf,
        "headroom": arguments.headroom or 0,
        "trip_count": arguments.trip_count,
        "routing": arguments.moe_routing,
        "assume": dict(arguments.assume),
        **techniques_of(arguments),
        **adapters_of(arguments),
        **parallelism_of(arguments),
    }


def _default_mode(subject: str) -> str:
    return "inference" if Path(subject).suffix.lower() == ".onnx" else "training"


def request_of(arguments: argparse.Namespace, options: Options) -> InputRequest:
    """What the arguments ask of the inputs."""
    from graphmem.options import Mode
    from graphmem.sources import InputRequest
    from graphmem.trace.run import model_dtype

    return InputRequest(
        inputs=tuple(arguments.input),
        batch=arguments.batch,
        seq=arguments.seq,
        task=arguments.task,
        dtype=model_dtype(options),
        labels=options.mode is Mode.TRAINING,
        dims=tuple(arguments.dim),
        default_dim=arguments.default_dim,
        rules=arguments.rules,
    )
