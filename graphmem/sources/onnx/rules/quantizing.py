"""Quantization, and products of quantized tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.narrow import FLOATS8, SMALL_FLOATS, to_float8, to_small_float
from graphmem.sources.onnx.refusal import refused
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.convolutions import centered, integer_conv

_E = ElementType
_RANGES = {
    **{_E.UINT2: (0, 3), _E.INT2: (-2, 1), _E.UINT4: (0, 15), _E.INT4: (-8, 7)},
    **{_E.UINT8: (0, 255), _E.INT8: (-128, 127)},
    **{_E.UINT16: (0, 65535), _E.INT16: (-32768, 32767)},
}
"""The least and the largest integer of a type."""


@rule("QuantizeLinear", since=10, constants=(1, 2))
def quantize(call: Call, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """``x / scale + zero``, rounded to even, saturated: for all, an axis, or blocks of it."""
    element = _quantized_type(call, zero)
    ratio = _ratio(call, x, _spread(call, scale, x))
    if element in _RANGES:
        rounded = ratio.round().to(torch.float32)
        if zero is not None:
            rounded = rounded + _spread(call, zero, x).to(torch.float32)
        return rounded.clamp(*_RANGES[element]).to(element.dtype)
    if element in SMALL_FLOATS:
        return to_small_float(ratio, element)
    if element not in FLOATS8:
        raise refused(call, f"nothing is quantized to {element.name}")
    return to_float8(ratio, element, saturate=call.integer("saturate", 1) == 1)


def _quantized_type(call: Call, zero: Tensor | None) -> ElementType:
    """The type of the zero point, or the one that is named; else uint8."""
    if zero is not None:
        return call.element(2) or ElementType.of(zero.dtype)
    return ElementType(call.integer("output_dtype", 0) or ElementType.UINT8)


def _ratio(call: Call, x: Tensor, scale: Tensor) -> Tensor:
    """The quotient in the precision that is asked for, or else in the wider one of both."""
    precision = ElementType(call.integer("precision", 0)).dtype
    if precision is not None:
        return x.to(precision) / scale.to(precision)
    if scale.dtype.itemsize < 2 or not x.dtype.is_floating_point:
        scale = scale.to(torch.float32)
    return x / scale


def _spread(call: Call, value: Tensor, x: Tensor) -> Tensor:
    """A scale or zero point, shaped so that it broadcasts to x."""
    if value.numel() == 1:
        return value.reshape(())
    axis, block = call.integer("axis", 1) % x.dim(), call.integer("block_size", 0)
    if block:
        return value.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])
    return value.reshape([-1 if i == axis else 1 for i in range(x.dim())])


@rule("DequantizeLinear", since=10, constants=(1, 2))
def dequantize(call: Call, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """``(x - zero) * scale``, in float32, as the scale's type or the one that is named."""
    wide = x.to(torch.float32)
    if zero is not None:
        wide = wide - _spread(call, zero, x).to(torch.float32)
    y = wide * _spread(call, scale, x).to(torch.float32)
    named = ElementType(call.integer("output_dtype", 0)).dtype
    return y.to(named or scale.dtype)


@rule("DynamicQuantizeLinear", since=11)
def dynamic_quantize(call: Call, x: Tensor) -> tuple[Tensor, ...]:
    """Quantized to uint8 by the range of its own values, which takes in zero."""
    least, most = _RANGES[ElementType.UINT8]
    high, low = x.amax().clamp(min=0), x.amin().clamp(max=0)
    scale = torch.where(high == low, torch.ones_like(high), high - low) / (most - least)
    zero = (least - low / scale).clamp(least, most).round()
    y = ((x / scale).round() + zero).clamp(least, most)
    return y.to(torch.uint8), scale, zero.to(torch.uint8)


@rule("MatMulInteger", since=10)
def matmul_integer(
    call: Call,
    a: Tensor,
    b: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
) -> Tensor:
    """A product of 8-bit integers less their zero points (of rows of a, of columns of b)."""
    return _product(a, b, a_zero, b_zero).to(torch.int32)


def _product(a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None) -> Tensor:
    """In float64: torch's CUDA multiplies no integers, and every sum is exact in it."""
    return centered(a, _of_rows(a_zero, a)) @ centered(b, b_zero)


def _of_rows(value: Tensor | None, a: Tensor) -> Tensor | None:
    """One value for each row of a matrix, as a column."""
    if value is None or value.dim() != 1 or value.numel() == 1 or a.dim() < 2:
        return value
    return value.unsqueeze(1)


@rule("QLinearMatMul", since=10, constants=(1, 4, 6))
def qlinear_matmul(
    call: Call,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    """A product of quantized matrices, quantized."""
    product = _product(a, b, a_zero, b_zero)
    left = _of_rows(a_scale, a)
    assert left is not None  # scales are required
    return _requantized(product, left * b_scale / y_scale, y_zero)


@rule("QLinearConv", since=10, constants=(1, 4, 6))
def qlinear_conv(
    call: Call,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    b: Tensor | None = None,
) -> Tensor:
    """A convolution of quantized tensors, quantized; scales of w are one a channel, or one."""
    sums = integer_conv(call, x, w, x_zero, w_zero).double()
    shape = [-1, *(1,) * (x.dim() - 2)]
    if b is not None:
        sums = sums + b.double().reshape(shape)
    scale = x_scale * w_scale / y_scale
    return _requantized(sums, scale.reshape(shape) if scale.numel() > 1 else scale, y_zero)


def _requantized(sums: Tensor, scale: Tensor, zero: Tensor) -> Tensor:
    """Integers times a scale, rounded to even, plus the zero point, saturated."""
    least, most = _RANGES[ElementType.of(zero.dtype)]
    if zero.numel() == 1:
        zero = zero.reshape(())
    if scale.numel() == 1:
        scale = scale.reshape(())
    return ((sums * scale).round() + zero).clamp(least, most).to(zero.dtype)
