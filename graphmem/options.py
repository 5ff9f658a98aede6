"""How a model is run: one frozen record, changed with ``dataclasses.replace``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum, unique
from typing import Any, TypeVar

from graphmem.errors import UsageError


@unique
class Mode(StrEnum):
    """What is run: a forward pass, or whole training steps."""

    INFERENCE = "inference"
    TRAINING = "training"


@unique
class Precision(StrEnum):
    """The precision that the model is run in."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    AMP_BF16 = "amp-bf16"
    AMP_FP16 = "amp-fp16"


@unique
class Target(StrEnum):
    """Whose memory is predicted."""

    CUDA = "cuda"
    CPU = "cpu"
    ONNXRUNTIME = "onnxruntime"


@unique
class Routing(StrEnum):
    """Which experts get the tokens of a mixture whose router's scores are unknown."""

    BALANCED = "balanced"
    WORST = "worst"


@unique
class Wrapper(StrEnum):
    """What spreads a model over several GPUs."""

    DDP = "ddp"
    ZERO1 = "zero 1"
    ZERO2 = "zero 2"
    FSDP = "fsdp"
    TENSORS = "tp"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of an analysis, resolved.

    ``precision`` None keeps the model's own dtype; ``master_weights`` gives the optimizer
    fp32 copies of half-precision parameters. ``foreach`` and ``fused`` None leave
    the choice to PyTorch's own default on the target. ``alloc_conf`` is PyTorch's own text
    (``PYTORCH_ALLOC_CONF``), None for its defaults. ``device`` is a GPU's name in
    ``graphmem.devices``, None if none was named; ``headroom`` bytes of it are to stay free.
    ``trip_count`` is how often loops run whose count depends on data, None for once (of an
    ONNX model: or as often as they may). ``routing`` is who is chosen by unknown scores;
    ``assume`` holds the user's own values for lines (``model.py:12``).
    ``compile`` asks for the same run under ``torch.compile`` beside the eager one.
    ``checkpoint`` and ``offload`` to ``chunked_loss`` are techniques that save memory (see
    ``graphmem.techniques``), several names in one text with commas between them.
    ``freeze`` are patterns of modules that are not trained;
    ``lora`` and ``quantize`` are adapters and packed base weights, as they are written (see
    ``graphmem.trace.adapters``).
    From ``ranks`` on: how many GPUs train one model, and how it is spread over them (see
    ``graphmem.trace.parallel``); ``zero`` is a stage, ``fsdp_units`` are patterns of paths.
    """

    mode: Mode = Mode.TRAINING
    target: Target = Target.CUDA
    precision: Precision | None = None
    master_weights: bool = False
    optimizer: str = "adamw"
    foreach: bool | None = None
    fused: bool | None = None
    set_to_none: bool = True
    clip_grad_norm: float | None = None
    accumulate: int = 1
    steps: int = 2
    grad: str = "no_grad"  # of an inference: no_grad, inference_mode or enabled
    strict: bool = False
    alloc_conf: str | None = None
    device: str | None = None
    headroom: int = 0
    trip_count: int | None = None
    compile: bool = False
    routing: Routing = Routing.BALANCED
    assume: tuple[tuple[str, bool | int | float], ...] = ()
    checkpoint: str | None = None
    checkpoint_every: int = 1
    checkpoint_save: str | None = None
    checkpoint_reentrant: bool = False
    offload: str | None = None
    pin_memory: bool = False
    optimizer_in_backward: bool = False
    channels_last: bool = False
    chunked_loss: int | None = None
    freeze: str | None = None
    lora: str | None = None
    quantize: str | None = None
    ranks: int | None = None
    zero: int | None = None
    ddp: bool = False
    bucket_view: bool = False
    bucket_cap_mb: int = 25
    zero_bucket: int = 500_000_000
    fsdp: bool = False
    fsdp_units: str | None = None
    fsdp_reshard: bool = True
    fsdp_prefetch: int = 0
    fsdp_param_dtype: str | None = None
    fsdp_reduce_dtype: str | None = None
    tp: bool = False
    tp_plan: str | None = None

    @property
    def wrapper(self) -> Wrapper | None:
        """What spreads the model over several GPUs, if anything does."""
        if self.tp:
            return Wrapper.TENSORS
        if self.fsdp or self.zero == 3:
            return Wrapper.FSDP
        if self.zero in (1, 2):
            return Wrapper.ZERO1 if self.zero == 1 else Wrapper.ZERO2
        return Wrapper.DDP if self.ddp or self.zero == 0 else None

    @property
    def has_fp16_gradients(self) -> bool:
        """Whether gradients are fp16 at first, so that on a GPU a GradScaler scales the loss."""
        halves = Precision.FP16 if self.master_weights else Precision.AMP_FP16
        return self.precision is halves

    def to_dict(self) -> dict[str, Any]:
        """The options as JSON values."""
        return {**asdict(self), "assume": dict(self.assume)}


DEFAULTS: Mapping[str, Any] = {field.name: field.default for field in fields(Options)}
"""Each option by name, and what it is where nobody says anything."""

LISTS = ("checkpoint", "checkpoint_save", "offload", "freeze", "fsdp_units")
"""The options that are several names in one text, with commas between them."""


def words(name: str) -> str:
    """An option's name in a sentence."""
    return name.replace("_", " ")


E_ = TypeVar("E_", bound=StrEnum)


def choice(kind: type[E_], value: str, option: str) -> E_:
    """The member of an enum that a user named.

    Raises:
        UsageError: naming the option, the nearest member and all members.
    """
    try:
        return kind(value)
    except ValueError:
        names = [str(member) for member in kind]
        raise UsageError(
            f"{option}: {value!r} is not one of {', '.join(names)}{nearest(value, names)}"
        ) from None


def nearest(value: str, names: Iterable[str]) -> str:
    """The end of an error message: ``; did you mean 'x'?``, or nothing."""
    lowered = {name.lower(): name for name in names}
    close = difflib.get_close_matches(value.lower(), list(lowered), n=1, cutoff=0.5)
    return f"; did you mean {lowered[close[0]]!r}?" if close else ""


_SIZE = re.compile(r"\s*(\d+)(?:\.(\d+))?\s*([kmgt]i?b|b)?\s*", re.IGNORECASE)
_POWERS = {letter: power for power, letter in enumerate("kmgt", start=1)}


def is_size(text: str) -> bool:
    """Whether it is a size with its unit, such as ``20GiB``."""
    found = _SIZE.fullmatch(text)
    return found is not None and found[3] is not None


def parse_bytes(size: int | str, option: str) -> int:
    """The bytes of ``"2GiB"`` (1024^3 each), ``"500 MB"`` (1000^2 each) or a plain number.

    Raises:
        UsageError: naming the option, for anything else, and for negative numbers.
    """
    found = _SIZE.fullmatch(str(size))
    whole, decimals, unit = found.groups(default="") if found else ("", "", "")
    if not whole or (decimals and len(unit) < 2):
        raise UsageError(f"{option}: {size!r} is not a size such as 2GiB, 500MB or 1048576")
    base = 1024 if "i" in unit.lower() else 1000
    scale: int = base ** _POWERS.get(unit[:1].lower(), 0)
    parts: int = 10 ** len(decimals)
    return int(whole + decimals) * scale // parts
