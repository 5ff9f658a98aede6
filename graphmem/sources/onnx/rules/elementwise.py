"""Arithmetic and functions that work element by element."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx import unsigned
from graphmem.sources.onnx.families import Binary, Unary, aligned, binary, unary
from graphmem.sources.onnx.registry import Call, rule

_UNARY: dict[str, Unary] = {
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "Log": torch.log,
    "Neg": torch.neg,
    "Reciprocal": torch.reciprocal,
    "Round": torch.round,  # halves to even, as ONNX
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
}
for _op, _function in _UNARY.items():
    unary(_op, _function)

_BINARY: dict[str, Binary] = {"Add": torch.add, "Sub": torch.sub, "Mul": torch.mul}
for _op, _of_two in _BINARY.items():
    binary(_op, partial(unsigned.wrapping, _of_two))


@rule("Abs")
def absolute(call: Call, x: Tensor) -> Tensor:
    """``abs(x)``; unsigned numbers are their own."""
    return torch.abs(x) if x.dtype.is_signed else x


@rule("Sign")
def sign(call: Call, x: Tensor) -> Tensor:
    """-1, 0 or 1."""
    return torch.sign(x) if x.dtype.is_signed else (x != 0).to(x.dtype)


@rule("Erf")
def erf(call: Call, x: Tensor) -> Tensor:
    """The error function, also of integers."""
    return torch.erf(x).to(x.dtype)


@rule("Identity")
def identity(call: Call, x: Any) -> Any:
    """The input itself: a tensor, sequence or optional."""
    return x


def _divide(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b) if a.dtype.is_floating_point else unsigned.divide(a, b)


binary("Div", _divide)


@rule("Mod", since=10)
def modulo(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """The remainder, with the sign of b, or of a with ``fmod=1``."""
    if a.dtype is torch.uint64:
        return unsigned.wrapping(lambda x, y, q: x - q * y, a, b, unsigned.divide(a, b))
    return unsigned.wrapping(torch.fmod if call.integer("fmod", 0) else torch.remainder, a, b)


@rule("Pow")
def power_aligned(call: Call, x: Tensor, y: Tensor) -> Tensor:
    """``x ** y`` before opset 7: see ``aligned``."""
    return _power(call, x, aligned(call, x, y))


@rule("Pow", since=7)
def power(call: Call, x: Tensor, y: Tensor) -> Tensor:
    """``x ** y`` in the type of x."""
    return _power(call, x, y)


def _power(call: Call, x: Tensor, y: Tensor) -> Tensor:
    """A constant exponent is a number: torch then keeps x alone for backward, not the result."""
    exponent: Any = call.scalar(1)
    if exponent is None or isinstance(exponent, complex):
        exponent = y.to(torch.int64) if y.dtype in unsigned.HELD else y
    return torch.pow(x, exponent).to(x.dtype)


@rule("BitShift", since=11)
def bit_shift(call: Call, x: Tensor, y: Tensor) -> Tensor:
    """``x >> y`` or ``x << y``; past the last bit nothing is left but the sign."""
    if call.text("direction") == "RIGHT":
        return unsigned.shift_right(x, y)
    return unsigned.wrapping(torch.bitwise_left_shift, x, y)


@rule("Clip")
def clip_by_attributes(call: Call, x: Tensor) -> Tensor:
    """Between ``min`` and ``max``, as far as they are given."""
    return _clamp(x, call.get("min"), call.get("max"))


@rule("Clip", since=6)
def clip_finite(call: Call, x: Tensor) -> Tensor:
    """Between ``min`` and ``max``, which are the type's own where they are not given."""
    limit = torch.finfo(x.dtype)
    return _clamp(x, call.number("min", limit.min), call.number("max", limit.max))


@rule("Clip", since=11, constants=(1, 2))
def clip(call: Call, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Between two inputs, as far as they are given."""
    given = [(position, bound) for position, bound in ((1, low), (2, high)) if bound is not None]
    known = {position: call.scalar(position) for position, _ in given}
    bounds = dict(given) if None in known.values() else known
    return _clamp(x, bounds.get(1), bounds.get(2))


def _clamp(x: Tensor, low: Any, high: Any) -> Tensor:
    """Also what ``nn.ReLU6`` is exported as, whose backward is one kernel, without masks."""
    if low is None and high is None:
        return x
    if x.dtype in unsigned.HELD:
        return _clamp_unsigned(x, low, high)
    if x.dtype.is_floating_point and _is(low, 0) and _is(high, 6):
        return F.relu6(x)
    return torch.clamp(x, low, high)


def _clamp_unsigned(x: Tensor, low: Any, high: Any) -> Tensor:
    for function, bound in ((torch.maximum, low), (torch.minimum, high)):
        if bound is not None:
            x = unsigned.selecting(function, x, torch.as_tensor(bound, dtype=x.dtype))
    return x


def _is(bound: Any, number: float) -> bool:
    return not isinstance(bound, Tensor) and bound == number


_FOLDED: dict[str, Binary] = {
    "Max": partial(unsigned.selecting, torch.maximum),
    "Min": partial(unsigned.selecting, torch.minimum),
    "Sum": torch.add,
}


def _fold(op: str, function: Binary) -> None:
    @rule(op)
    def run(call: Call, *inputs: Tensor) -> Tensor:
        """Of any number of inputs, which broadcast as in NumPy (as of opset 8)."""
        return reduce(function, inputs)


for _op, _of_two in _FOLDED.items():
    _fold(_op, _of_two)


@rule("Mean")
def mean(call: Call, *inputs: Tensor) -> Tensor:
    """The mean of any number of inputs, element by element."""
    return reduce(torch.add, inputs) / len(inputs)
