"""Arithmetic on uint16, uint32 and uint64, which torch can hold and convert, but not add.

They are computed in int64: uint16 and uint32 lie within it, and uint64 has the same bits, so
that sums, products and left shifts are right once the bits above are dropped. What depends on
the order of numbers needs uint64 moved to where int64 has the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

HELD = frozenset({torch.uint16, torch.uint32, torch.uint64})
"""The types that torch holds and converts only."""

_LOWEST = -(1 << 63)


def wrapping(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """``function(*inputs)``, of which only the low bits count, in the type of the first."""
    dtype = inputs[0].dtype
    if dtype not in HELD:
        return function(*inputs)
    return function(*(x.to(torch.int64) for x in inputs)).to(dtype)


def ordering(function: Callable[..., Any], *inputs: Tensor) -> Any:
    """``function(*inputs)``, which compares, and returns booleans or indices."""
    if inputs[0].dtype not in HELD:
        return function(*inputs)
    return function(*map(_in_order, inputs))


def selecting(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """``function(*inputs)``, which compares, and returns some of the numbers that it was given."""
    dtype = inputs[0].dtype
    if dtype not in HELD:
        return function(*inputs)
    result = function(*map(_in_order, inputs))
    return (result ^ _LOWEST if dtype is torch.uint64 else result).to(dtype)


def divide(a: Tensor, b: Tensor) -> Tensor:
    """The quotient of integers, rounded toward zero."""
    if a.dtype is not torch.uint64:
        return wrapping(_truncated, a, b)
    dividend, divisor = a.to(torch.int64), b.to(torch.int64)
    # Half the dividend is not negative; its doubled quotient is right or one too small. A
    # divisor of 2^63 or more is negative here, and goes into a dividend once or not at all.
    halved = (dividend >> 1) & ~_LOWEST
    near = torch.where(divisor > 0, _truncated(halved, divisor) << 1, 0)
    rest = dividend - near * divisor
    too_small: Tensor = ordering(torch.ge, rest.to(a.dtype), b)
    return (near + too_small).to(a.dtype)


def shift_right(x: Tensor, by: Tensor) -> Tensor:
    """``x >> by``: zeros come in from the left, of signed numbers copies of the sign."""
    if x.dtype is not torch.uint64:
        return wrapping(torch.bitwise_right_shift, x, by)
    bits, count = x.to(torch.int64), by.to(torch.int64)
    kept = torch.bitwise_left_shift(torch.ones_like(bits), 64 - count) - 1
    return ((bits >> count) & kept).to(x.dtype)


def _truncated(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b, rounding_mode="trunc")


def _in_order(x: Tensor) -> Tensor:
    held = x.to(torch.int64)
    return held ^ _LOWEST if x.dtype is torch.uint64 else held
