"""The options that spread a training over several GPUs, checked together.

What each does is in ``graphmem.trace.parallel``.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphmem.errors import UsageError
from graphmem.options import (
    DEFAULTS,
    Mode,
    Options,
    Precision,
    Target,
    Wrapper,
    nearest,
    words,
)

STAGES = (0, 1, 2, 3)
"""ZeRO's: nothing is sharded, or optimizer states, also gradients, also parameters."""

DTYPES = ("bfloat16", "float16", "float32")
"""What FSDP's mixed precision casts to."""

NAMES = (
    *("ranks", "zero", "ddp", "bucket_view", "bucket_cap_mb", "zero_bucket", "fsdp", "fsdp_units"),
    *("fsdp_reshard", "fsdp_prefetch", "fsdp_param_dtype", "fsdp_reduce_dtype", "tp", "tp_plan"),
)
"""The options."""

_DETAILS = {
    "bucket_view": (Wrapper.DDP, Wrapper.ZERO1),
    "bucket_cap_mb": (Wrapper.DDP, Wrapper.ZERO1),
    "zero_bucket": (Wrapper.ZERO2,),
    "fsdp_units": (Wrapper.FSDP,),
    "fsdp_reshard": (Wrapper.FSDP,),
    "fsdp_prefetch": (Wrapper.FSDP,),
    "fsdp_param_dtype": (Wrapper.FSDP,),
    "fsdp_reduce_dtype": (Wrapper.FSDP,),
    "tp_plan": (Wrapper.TENSORS,),
}


def check(options: Options) -> None:
    """Refuse options of several GPUs that say nothing, or two things.

    Raises:
        UsageError: naming the option, and what to do.
    """
    ranks, zero = options.ranks, options.zero
    if ranks is not None and ranks < 1:
        raise UsageError(f"ranks must be 1 or more, not {ranks}")
    if zero is not None and zero not in STAGES:
        raise UsageError(f"zero: the stages are 0, 1, 2 and 3, not {zero}")
    asked = _asked(options)
    if ranks is not None and not asked:
        raise UsageError(
            f"ranks {ranks}: how is the model spread over them? add zero, ddp, fsdp or tp"
        )
    if asked and ranks is None:
        raise UsageError(f"{asked}: over how many GPUs? add ranks")
    _check_details(options)
    if asked:
        _check_rest(options, asked)


def _asked(options: Options) -> str | None:
    """The option that says how the model is spread."""
    zero = options.zero
    if options.tp and (options.ddp or options.fsdp or zero is not None):
        raise UsageError("tp: only alone, not with data parallelism")
    if options.tp:
        return "tp"
    if options.ddp and options.fsdp:
        raise UsageError("ddp and fsdp: a model is spread over ranks in one way")
    if options.ddp and zero not in (None, 0, 1):
        raise UsageError(f"ddp and zero {zero}: a model is spread over ranks in one way")
    if options.fsdp and zero not in (None, 3):
        raise UsageError(f"fsdp and zero {zero}: a model is spread over ranks in one way")
    if zero is not None:
        return f"zero {zero}"
    return "ddp" if options.ddp else "fsdp" if options.fsdp else None


def _check_details(options: Options) -> None:
    """Refuse details of what is not asked for, and dtypes that there are none of."""
    for name, wrappers in _DETAILS.items():
        if getattr(options, name) != DEFAULTS[name] and options.wrapper not in wrappers:
            raise UsageError(f"{words(name)}: goes with {' or '.join(wrappers)}")
    if options.bucket_cap_mb < 1:
        raise UsageError(f"bucket cap must be 1 MiB or more, not {options.bucket_cap_mb}")
    if options.fsdp_prefetch < 0:
        raise UsageError(f"fsdp prefetch must be 0 units or more, not {options.fsdp_prefetch}")
    if options.zero_bucket < 1:
        raise UsageError(f"zero bucket must be 1 element or more, not {options.zero_bucket}")
    for name in ("fsdp_param_dtype", "fsdp_reduce_dtype"):
        dtype = getattr(options, name)
        if dtype is not None and dtype not in DTYPES:
            near = nearest(dtype, DTYPES)
            raise UsageError(f"{words(name)}: {dtype!r} is not one of {', '.join(DTYPES)}{near}")


def _check_rest(options: Options, asked: str) -> None:
    """Refuse what does not go with several GPUs."""
    if options.target is Target.ONNXRUNTIME:
        raise UsageError(f"{asked}: goes with target cuda or cpu")
    if options.compile:
        raise UsageError(f"{asked}: what torch.compile makes of it is not simulated")
    if options.mode is Mode.INFERENCE and options.wrapper in (Wrapper.ZERO1, Wrapper.ZERO2):
        raise UsageError(f"{asked}: an inference has no optimizer; use mode training")
    for name in ("optimizer_in_backward", "offload", "chunked_loss"):
        if getattr(options, name):
            raise UsageError(f"{asked}: not simulated with {words(name)}; leave one of them out")
    if options.wrapper is Wrapper.ZERO2 and options.master_weights:
        raise UsageError(f"{asked}: it keeps fp32 copies by itself; leave out master weights")
    if options.wrapper is Wrapper.FSDP and options.master_weights:
        raise UsageError(
            f"{asked}: not with master weights; use precision fp32 and fsdp-param-dtype bfloat16"
        )
    if options.wrapper is Wrapper.ZERO2 and options.precision is Precision.AMP_FP16:
        raise UsageError(f"{asked}: DeepSpeed has no GradScaler; use precision bf16 or amp-bf16")


def plan_text(given: str | Mapping[str, str] | None) -> str | None:
    """A plan of tensor parallelism as one text."""
    if given is None or isinstance(given, str):
        return given
    return ",".join(f"{pattern}={style}" for pattern, style in given.items())
