"""Layers of bitsandbytes that the user's model has already, exchanged for those of ``packed``.

Under a trace their own code would see tensors on the CPU, and take the kernels for a CPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from graphmem.trace.adapters.packed import Packed4bit, Packed8bit, nested_levels

_FOUR, _EIGHT = "Linear4bit", "Linear8bitLt"


def has_packed(model: nn.Module) -> bool:
    """Whether a model has a layer of bitsandbytes that can be exchanged."""
    return any(True for _ in _layers(model))


def exchange(model: nn.Module) -> None:
    """Exchange them, in place."""
    levels: nn.Parameter | None = None
    for parent, name, layer in list(_layers(model)):
        if _kind(layer) == _EIGHT:
            made: nn.Module = Packed8bit(layer)
        else:
            nested = _is_nested(layer)
            levels = (levels or nested_levels()) if nested else levels
            made = Packed4bit(layer, levels if nested else None, dtype=_unpacked_dtype(layer))
        made.train(layer.training)
        setattr(parent, name, made)


def _layers(model: nn.Module) -> Iterator[tuple[nn.Module, str, Any]]:
    for parent in model.modules():
        for name, child in parent.named_children():
            if _kind(child) is not None:
                yield parent, name, child


def _kind(module: nn.Module) -> str | None:
    """Which of both a module is; 8-bit layers with weights in fp16 beside are neither."""
    for cls in type(module).__mro__:
        if cls.__module__.startswith("bitsandbytes.nn") and cls.__name__ in (_FOUR, _EIGHT):
            keeps_half = getattr(getattr(module, "state", None), "has_fp16_weights", False)
            return None if keeps_half else cls.__name__
    return None


def _is_nested(layer: Any) -> bool:
    state = getattr(layer.weight, "quant_state", None)
    nested = getattr(layer.weight, "compress_statistics", False) if state is None else state.nested
    return bool(nested)


def _unpacked_dtype(layer: Any) -> torch.dtype:
    """What the weight was before it was packed, or is."""
    state = getattr(layer.weight, "quant_state", None)
    found: torch.dtype = layer.weight.dtype if state is None else state.dtype
    return found
