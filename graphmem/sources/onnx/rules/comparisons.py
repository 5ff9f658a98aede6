"""Comparisons, logic, and operations on bits."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmem.sources.onnx import unsigned
from graphmem.sources.onnx.families import Binary, aligned, binary, unary
from graphmem.sources.onnx.registry import Call, rule

_ORDER: dict[str, tuple[Binary, int]] = {
    "Greater": (torch.gt, 7),
    "GreaterOrEqual": (torch.ge, 12),
    "Less": (torch.lt, 7),
    "LessOrEqual": (torch.le, 12),
}
for _op, (_function, _since) in _ORDER.items():
    binary(_op, partial(unsigned.ordering, _function), _since)

_LOGIC: dict[str, tuple[Binary, int]] = {
    "And": (torch.logical_and, 7),
    "Or": (torch.logical_or, 7),
    "Xor": (torch.logical_xor, 7),
    "BitwiseAnd": (torch.bitwise_and, 18),
    "BitwiseOr": (torch.bitwise_or, 18),
    "BitwiseXor": (torch.bitwise_xor, 18),
}
for _op, (_function, _since) in _LOGIC.items():
    binary(_op, _function, _since)

unary("Not", torch.logical_not)


@rule("BitwiseNot", since=18)
def bitwise_not(call: Call, x: Tensor) -> Tensor:
    """All bits the other way round."""
    return unsigned.wrapping(torch.bitwise_not, x)


@rule("Equal")
def equal_aligned(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """``a == b`` before opset 7: see ``aligned``."""
    return torch.eq(a, aligned(call, a, b))


@rule("Equal", since=7)
def equal(call: Call, a: Any, b: Any) -> Tensor:
    """``a == b``, of strings too."""
    if isinstance(a, np.ndarray):
        return torch.from_numpy(np.asarray(a == b, dtype=bool))
    return torch.eq(a, b)


@rule("IsNaN", since=9)
def is_nan(call: Call, x: Tensor) -> Tensor:
    """Which are no numbers; an 8-bit float is looked at as float32."""
    return torch.isnan(x.float() if x.dtype.itemsize == 1 else x)


@rule("IsInf", since=10)
def is_inf(call: Call, x: Tensor) -> Tensor:
    """Which are infinite, of one sign or of both."""
    x = x.float() if x.dtype.itemsize == 1 else x
    positive, negative = call.integer("detect_positive", 1), call.integer("detect_negative", 1)
    if positive and negative:
        return torch.isinf(x)
    if not positive and not negative:
        return torch.zeros_like(x, dtype=torch.bool)
    return torch.isposinf(x) if positive else torch.isneginf(x)
