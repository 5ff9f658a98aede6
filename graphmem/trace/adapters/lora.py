"""LoRA, by peft's own modules: ``r=16,alpha=32,targets=q_proj+v_proj,dropout=0.05``.

peft keeps adapters in fp32 where the base weights are of half precision
(``autocast_adapter_dtype`` of peft's ``get_peft_model``), and freezes all else.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn

from graphmem.as_text import shorten
from graphmem.errors import UsageError
from graphmem.options import nearest
from graphmem.sources.packages import needed
from graphmem.trace.adapters.around_packed import around_packed
from graphmem.trace.adapters.marks import KEEPS_DTYPE, keeps_dtype
from graphmem.trace.adapters.packed import Packed4bit, Packed8bit

_HALF = (torch.bfloat16, torch.float16)
_LONGEST = 200
"""Characters of what peft says; it prints whole modules."""


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """peft's ``LoraConfig``; ``targets`` and ``save`` are names with ``+`` between them.

    ``targets`` None takes peft's own for the type of model; ``save`` are modules that are
    trained whole. ``kbit`` is peft's ``prepare_model_for_kbit_training`` before: what is not
    packed is cast to fp32. (It switches checkpointing on too, which here is ``--checkpoint``.)
    """

    r: int = 8
    alpha: int = 8
    dropout: float = 0.0
    targets: str | None = None
    save: str | None = None
    bias: str = "none"
    dora: bool = False
    kbit: bool = False

    @staticmethod
    def of(given: str | Mapping[str, Any]) -> LoraSettings:
        """The settings in a text, or in a mapping of the same names.

        Raises:
            UsageError: for an unknown name, with the nearest, or a value that is none.
        """
        if isinstance(given, str):
            given = dict(_pair(part) for part in given.split(",") if part.strip())
        kinds = {field.name: field.type for field in fields(LoraSettings)}
        made: dict[str, Any] = {}
        for name, value in given.items():
            if name not in kinds:
                known = ", ".join(kinds)
                raise UsageError(f"lora: {name!r} is not one of {known}{nearest(name, kinds)}")
            made[name] = _value(name, value, str(kinds[name]))
        return LoraSettings(**made)

    def to_text(self) -> str:
        """The settings as they are written, without those that are the default."""
        plain = LoraSettings()
        names = [field.name for field in fields(self)]
        changed = [n for n in names if n == "r" or getattr(self, n) != getattr(plain, n)]
        return ",".join(f"{name}={getattr(self, name)}" for name in changed)


def _pair(part: str) -> tuple[str, str]:
    name, has, value = part.strip().partition("=")
    if not has:
        raise UsageError(f"lora: {part.strip()!r} is not NAME=VALUE, such as r=16")
    return name.strip(), value.strip()


def _value(name: str, value: Any, kind: str) -> Any:
    if not isinstance(value, str):
        is_list = isinstance(value, list | tuple | set)
        return "+".join(map(str, value)) if is_list else value
    try:
        if kind == "bool":
            return {"true": True, "1": True, "false": False, "0": False}[value.lower()]
        return {"int": int, "float": float}.get(kind, str)(value)
    except (KeyError, ValueError):
        raise UsageError(f"lora: {name}={value} is not a value of type {kind}") from None


def with_lora(model: nn.Module, settings: LoraSettings, dtype: torch.dtype | None) -> nn.Module:
    """The model with peft's adapters in it; it is changed in place.

    Args:
        dtype: what ``precision`` converts the base weights to; None keeps their own.

    Raises:
        UsageError: if peft refuses, such as for targets that are not in the model.
    """
    peft = needed("peft", "peft", "lora")
    config = _config(peft, settings)
    if settings.kbit:
        _prepare(model)
    try:
        with warnings.catch_warnings():  # of names that transformers changed under peft
            warnings.simplefilter("ignore", FutureWarning)
            made: Any = peft.get_peft_model(model, config)
    except Exception as error:  # peft has no common base for what it refuses
        raise UsageError(f"lora: {_refusal(error, settings, model)}") from error
    base: nn.Module = made.base_model.model
    _convert(base, dtype)
    return base


def _prepare(model: nn.Module) -> None:
    """Freeze everything, and cast what is not packed to fp32.

    Source: peft/utils/other.py, ``prepare_model_for_kbit_training`` (peft 0.21).
    """
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        if parameter.is_floating_point() and not keeps_dtype(parameter):
            parameter.data = parameter.data.to(torch.float32)
            setattr(parameter, KEEPS_DTYPE, True)


def _config(peft: Any, settings: LoraSettings) -> Any:
    targets = settings.targets
    config = peft.LoraConfig(
        r=settings.r,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=targets if targets in (None, "all-linear") else targets.split("+"),
        modules_to_save=None if settings.save is None else settings.save.split("+"),
        bias=settings.bias,
        use_dora=settings.dora,
    )
    around = around_packed(peft)
    config._register_custom_module({Packed4bit: around, Packed8bit: around})
    return config


def _refusal(error: Exception, settings: LoraSettings, model: nn.Module) -> str:
    """What peft says, with the nearest names where a target matches nothing."""
    names = {name.split(".")[-1] for name, module in model.named_modules() if name}
    missing = [t for t in (settings.targets or "").split("+") if t and t not in names]
    if missing and "not found" in str(error):
        return f"no module is called {missing[0]!r}{nearest(missing[0], names)}"
    return shorten(" ".join(str(error).split()), _LONGEST)


def _convert(model: nn.Module, dtype: torch.dtype | None) -> None:
    """Let what is trained keep fp32, where the base weights are converted to half precision."""
    if dtype not in _HALF:
        return
    for parameter in model.parameters():
        if parameter.requires_grad:
            setattr(parameter, KEEPS_DTYPE, True)
