"""What a user asks of several GPUs, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphmem.errors import UsageError
from graphmem.options import Mode, Target, nearest

_DTYPES = ("bfloat16", "float16", "float32")
_STAGES = (0, 1, 2, 3)
_OF_DDP = {"bucket_view": False, "bucket_cap_mb": 25}
_OF_FSDP = {
    "fsdp_units": None,
    "fsdp_reshard": True,
    "fsdp_param_dtype": None,
    "fsdp_reduce_dtype": None,
}


def check_parallel(values: Mapping[str, Any]) -> None:
    """Refuse options of several GPUs that say nothing, or two things.

    Raises:
        UsageError: naming the option.
    """
    ranks, zero = values.get("ranks"), values.get("zero")
    ddp, fsdp = bool(values.get("ddp")), bool(values.get("fsdp"))
    if ranks is not None and ranks < 1:
        raise UsageError(f"ranks must be 1 or more, not {ranks}")
    if zero is not None and zero not in _STAGES:
        raise UsageError(f"zero: there are stages 0, 1, 2 and 3, not {zero}")
    asked = [name for name, on in (("zero", zero is not None), ("ddp", ddp), ("fsdp", fsdp)) if on]
    if len(asked) > 1 and not (fsdp and not ddp and zero == 3) and not (ddp and zero in (0, 1)):
        raise UsageError(f"{' and '.join(asked)}: a model is spread over ranks in one way")
    if ranks is not None and not asked:
        raise UsageError(f"ranks {ranks}: how is the model spread over them? add zero, ddp or fsdp")
    if asked and ranks is None:
        raise UsageError(f"{asked[0]}: over how many GPUs? add ranks")
    _check_details(values, fsdp=fsdp or zero == 3, ddp=ddp or zero in (0, 1))
    if asked:
        _check_rest(values, asked[0])


def _check_details(values: Mapping[str, Any], *, fsdp: bool, ddp: bool) -> None:
    """Refuse details of what is not asked for, and dtypes that there are none of."""
    for options, is_on, needed in ((_OF_DDP, ddp, "ddp"), (_OF_FSDP, fsdp, "fsdp")):
        for name, default in options.items():
            if values.get(name, default) != default and not is_on:
                raise UsageError(f"{name.replace('_', '-')}: goes with {needed}")
    if values.get("bucket_cap_mb", 25) < 1:
        raise UsageError(f"bucket-cap-mb must be 1 or more, not {values['bucket_cap_mb']}")
    for name in ("fsdp_param_dtype", "fsdp_reduce_dtype"):
        dtype = values.get(name)
        if dtype is not None and dtype not in _DTYPES:
            shown = f"{name.replace('_', '-')}: {dtype!r} is not one of {', '.join(_DTYPES)}"
            raise UsageError(shown + nearest(dtype, _DTYPES))


def _check_rest(values: Mapping[str, Any], asked: str) -> None:
    """Refuse what does not go with several GPUs."""
    if values.get("target") is Target.ONNXRUNTIME:
        raise UsageError(f"{asked}: goes with target cuda or cpu")
    if values.get("compile"):
        raise UsageError(f"{asked}: not with compile; leave one of them out")
    if values.get("mode") is Mode.INFERENCE and values.get("zero") in (1, 2):
        raise UsageError(f"zero {values['zero']}: an inference has no optimizer; use mode training")
