"""Converting to element types that torch does not have, or converts to otherwise than ONNX.

Integers of 2 and 4 bits are held in int8 and uint8, floats of 4 and 6 bits in float32 (see
``element_types``). Source of all rules: ONNX's documentation of Cast and of its float4, float6
and float8 types, and the Open Compute Project's MX specification for E8M0.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem.sources.onnx.element_types import ElementType

_E = ElementType
SMALL_INTEGERS = frozenset({_E.UINT2, _E.INT2, _E.UINT4, _E.INT4})
FLOATS8 = frozenset({_E.FLOAT8E4M3FN, _E.FLOAT8E4M3FNUZ, _E.FLOAT8E5M2, _E.FLOAT8E5M2FNUZ})


class SmallFloat(NamedTuple):
    """A float of a sign, an exponent and a mantissa, without infinities and NaN.

    Numbers are multiples of ``2 ** (exponent - mantissa_bits)``, exponent being that of the
    number, but at least ``lowest``; ``highest`` is that of the largest.
    """

    lowest: int
    highest: int
    mantissa_bits: int

    @property
    def largest(self) -> float:
        """The largest number."""
        return (2 - 2.0**-self.mantissa_bits) * 2.0**self.highest

    def magnitudes(self) -> list[float]:
        """All numbers that are not negative, in the order of their bits."""
        steps = 1 << self.mantissa_bits
        scales = [2.0 ** (e - self.mantissa_bits) for e in range(self.lowest, self.highest + 1)]
        normal = [scale * m for scale in scales for m in range(steps, 2 * steps)]
        return [scales[0] * m for m in range(steps)] + normal


SMALL_FLOATS = {
    _E.FLOAT4E2M1: SmallFloat(lowest=0, highest=2, mantissa_bits=1),
    _E.FLOAT6E2M3: SmallFloat(lowest=0, highest=2, mantissa_bits=3),
    _E.FLOAT6E3M2: SmallFloat(lowest=-2, highest=4, mantissa_bits=2),
}


def to_small_integer(x: Tensor, to: ElementType) -> Tensor:
    """As an integer of 2 or 4 bits; higher bits are dropped."""
    whole = x.to(torch.int64) if x.dtype.is_floating_point else x
    unused = 8 - to.bits
    if to in (_E.UINT2, _E.UINT4):
        return whole.to(torch.uint8) & (0xFF >> unused)
    return (whole.to(torch.int8) << unused) >> unused


def to_small_float(x: Tensor, to: ElementType) -> Tensor:
    """As a float of 4 or 6 bits: the nearest one, halves to even, at most the largest.

    There is no NaN among them: it becomes 0, as in the onnx package's own tests.
    """
    form = SMALL_FLOATS[to]
    x = _as_float(x)
    exponent = torch.frexp(x).exponent - 1
    step = torch.ldexp(
        torch.ones_like(x), exponent.clamp(form.lowest, form.highest) - form.mantissa_bits
    )
    nearest = torch.round(x / step) * step
    return torch.nan_to_num(nearest.clamp(-form.largest, form.largest), nan=0.0).to(torch.float32)


_ROUNDS_TO_LARGEST_E4M3FN = 464.0
"""Halfway between the largest, 448, and what would come next, 480; a half goes to the even."""


def to_float8(x: Tensor, to: ElementType, saturate: bool) -> Tensor:
    """As one of four 8-bit floats; too large numbers become the largest, or NaN or infinite."""
    dtype = to.dtype
    assert dtype is not None  # each of FLOATS8 has one
    wide = x.dtype.is_floating_point and x.dtype.itemsize > 1
    x = x if wide else x.to(torch.float32)
    largest = torch.finfo(dtype).max  # float16 and bfloat16 have it, too
    if saturate:
        return x.clamp(-largest, largest).to(dtype)
    if to is _E.FLOAT8E4M3FN:  # some releases of torch saturate here
        x = torch.where(x.abs() > _ROUNDS_TO_LARGEST_E4M3FN, torch.nan, x)
    return x.to(dtype)


_NAN_E8M0 = 0xFF
_BIAS_E8M0 = 127


def to_e8m0(x: Tensor, saturate: bool, mode: str) -> Tensor:
    """As a power of two; ``mode`` is up, down or nearest (halves up).

    What lies beyond the smallest or largest becomes that one, or NaN; 0 lies below.
    """
    mantissa, exponent = torch.frexp(_as_float(x))  # x = mantissa * 2^exponent, 0.5 <= mantissa
    up = {"up": mantissa > 0.5, "nearest": mantissa >= 0.75, "down": mantissa > 1}[mode]
    code = exponent - 1 + up.to(torch.int32) + _BIAS_E8M0
    code = torch.where(x == 0, -1, torch.where(torch.isinf(x), _NAN_E8M0, code))
    outside = (code < 0) | (code >= _NAN_E8M0)
    code = code.clamp(0, _NAN_E8M0 - 1) if saturate else torch.where(outside, _NAN_E8M0, code)
    code = torch.where(torch.isnan(x), _NAN_E8M0, code)
    return code.to(torch.uint8).view(torch.float8_e8m0fnu)


def _as_float(x: Tensor) -> Tensor:
    return x if x.dtype in (torch.float32, torch.float64) else x.to(torch.float32)


def bits_of(x: Tensor, element: ElementType) -> Tensor:
    """The bits of a type of less than a byte, as uint8."""
    if element in SMALL_INTEGERS:
        return x.view(torch.uint8) & (0xFF >> (8 - element.bits))
    numbers = torch.tensor(_magnitudes(element), device=x.device)
    sign = torch.signbit(x).to(torch.uint8) << (element.bits - 1)
    return torch.searchsorted(numbers, x.abs()).to(torch.uint8) | sign


def from_bits(bits: Tensor, element: ElementType) -> Tensor:
    """A type of less than a byte, of its bits as uint8."""
    if element in SMALL_INTEGERS:
        return to_small_integer(bits, element)
    positive = _magnitudes(element)
    numbers = torch.tensor([*positive, *(-m for m in positive)], device=bits.device)
    return numbers[bits.to(torch.int64)]


@cache
def _magnitudes(element: ElementType) -> list[float]:
    return SMALL_FLOATS[element].magnitudes()
