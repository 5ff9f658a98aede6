"""Operators from quantized tensors to quantized tensors: QLinear*.

Each is the operator of the numbers meant, ``(x - zero_point) * scale``, rounded back.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.microsoft.nhwc import channels_first, channels_last
from graphmem.sources.onnx.rules.microsoft.of_onnx import MICROSOFT, onnx_rule


def dequantized(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """The numbers that a quantized tensor means, in the type of its scale."""
    numbers = x.to(scale.dtype)
    return (numbers if zero is None else numbers - zero.to(scale.dtype)) * scale


def quantized(y: Tensor, scale: Tensor, zero: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Numbers as a quantized tensor: rounded half to even, and kept within the type."""
    limits = torch.iinfo(dtype)
    places = torch.round(y / scale)
    if zero is not None:
        places = places + zero.to(places.dtype)
    return places.clamp(limits.min, limits.max).to(dtype)


@rule("QLinearAdd", domain=MICROSOFT, constants=(1, 4, 6))
def qlinear_add(
    call: Call,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor | None,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None,
    c_scale: Tensor,
    c_zero: Tensor | None = None,
) -> Tensor:
    """A sum; shapes broadcast."""
    total = dequantized(a, a_scale, a_zero) + dequantized(b, b_scale, b_zero)
    return quantized(total, c_scale, c_zero, a.dtype)


@rule("QLinearMul", domain=MICROSOFT, constants=(1, 4, 6))
def qlinear_mul(
    call: Call,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor | None,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None,
    c_scale: Tensor,
    c_zero: Tensor | None = None,
) -> Tensor:
    """A product; shapes broadcast."""
    product = dequantized(a, a_scale, a_zero) * dequantized(b, b_scale, b_zero)
    return quantized(product, c_scale, c_zero, a.dtype)


@rule("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT, constants=(1, 3))
def qlinear_activation(
    call: Call,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
) -> Tensor:
    """Sigmoid or LeakyRelu."""
    numbers = dequantized(x, x_scale, x_zero)
    if call.node.op == "QLinearSigmoid":
        return quantized(torch.sigmoid(numbers), y_scale, y_zero, x.dtype)
    leaky = F.leaky_relu(numbers, call.number("alpha", 0.01))
    return quantized(leaky, y_scale, y_zero, x.dtype)


@rule("QLinearSoftmax", domain=MICROSOFT, constants=(1, 3))
def qlinear_softmax(
    call: Call,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
) -> Tensor:
    """Softmax along an axis; over all dimensions from it on if ``opset`` is before 13."""
    numbers, axis = dequantized(x, x_scale, x_zero), call.integer("axis", -1)
    if call.integer("opset") < 13:
        numbers = numbers.flatten(axis % x.dim())
        axis = -1
    y = torch.softmax(numbers, axis).reshape(x.shape)
    return quantized(y, y_scale, y_zero, x.dtype)


@rule("QLinearConcat", domain=MICROSOFT, constants=(0, *range(3, 3000, 3)))
def qlinear_concat(call: Call, y_scale: Tensor, y_zero: Tensor, *inputs: Tensor) -> Tensor:
    """Tensors one after the other; inputs are each a tensor, its scale and its zero point."""
    triples = zip(inputs[0::3], inputs[1::3], inputs[2::3], strict=True)
    parts = [quantized(dequantized(*t), y_scale, y_zero, y_zero.dtype) for t in triples]
    return torch.cat(parts, call.integer("axis"))


@rule("QLinearWhere", domain=MICROSOFT, constants=(2, 5, 7))
def qlinear_where(
    call: Call,
    condition: Tensor,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    y: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    z_scale: Tensor,
    z_zero: Tensor,
) -> Tensor:
    """Elements of x where the condition holds, else of y."""
    yes = quantized(dequantized(x, x_scale, x_zero), z_scale, z_zero, x.dtype)
    no = quantized(dequantized(y, y_scale, y_zero), z_scale, z_zero, y.dtype)
    return torch.where(condition, yes, no)


@rule("QLinearAveragePool", domain=MICROSOFT, constants=(1, 3))
@rule("QLinearAveragePool", domain="com.ms.internal.nhwc", constants=(1, 3))
def qlinear_average_pool(
    call: Call,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
) -> Tensor:
    """AveragePool of [N, C, ...], or of [N, ..., C] if ``channels_last``."""
    last = call.integer("channels_last", 0) or call.node.domain != MICROSOFT
    numbers = dequantized(x, x_scale, x_zero)
    numbers = channels_first(numbers) if last else numbers
    pooled = onnx_rule(call, "AveragePool", numbers)
    made = quantized(pooled, y_scale, y_zero, x.dtype)
    return channels_last(made) if last else made


@rule("QLinearGlobalAveragePool", domain=MICROSOFT, constants=(1, 3))
def qlinear_global_average_pool(
    call: Call, x: Tensor, x_scale: Tensor, x_zero: Tensor, y_scale: Tensor, y_zero: Tensor
) -> Tensor:
    """The mean of each channel of [N, C, ...], or of [N, ..., C] if ``channels_last``."""
    last = call.integer("channels_last", 0)
    dims = tuple(range(1, x.dim() - 1)) if last else tuple(range(2, x.dim()))
    mean = dequantized(x, x_scale, x_zero).mean(dims, keepdim=True)
    return quantized(mean, y_scale, y_zero, x.dtype)


@rule("QLinearReduceMean", domain=MICROSOFT, constants=(1, 3))
def qlinear_reduce_mean(
    call: Call,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
) -> Tensor:
    """The mean along axes, all of them if none is named."""
    axes = call.integers("axes", ()) or tuple(range(x.dim()))
    mean = dequantized(x, x_scale, x_zero).mean(axes, keepdim=bool(call.integer("keepdims", 1)))
    return quantized(mean, y_scale, y_zero, x.dtype)


@rule("QLinearConv", domain=MICROSOFT, constants=(1, 4, 6))
def qlinear_conv(call: Call, x: Tensor, *rest: Any) -> Tensor:
    """ONNX's QLinearConv, of [N, ..., C] if ``channels_last``."""
    last = call.integer("channels_last", 0)
    first = channels_first(x) if last else x
    made: Tensor = onnx_rule(call, "QLinearConv", first, *rest, version=10)
    return channels_last(made) if last else made


@rule("QLinearConvTranspose", domain="com.ms.internal.nhwc", constants=(1, 4, 6))
def qlinear_conv_transpose(
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
    """ConvTranspose of [N, ..., C]; a bias is of int32, in steps of x's scale times w's."""
    numbers = channels_first(dequantized(x, x_scale, x_zero))
    bias = None if b is None else b.to(x_scale.dtype) * (x_scale * w_scale)
    weight = dequantized(w, w_scale, w_zero)
    y = onnx_rule(call, "ConvTranspose", numbers, weight, bias, origins=(0, 3, 8))
    return channels_last(quantized(y, y_scale, y_zero, x.dtype))


@rule("QuantizeLinear", "DequantizeLinear", domain=MICROSOFT, constants=(1,))
def same_as_onnx(call: Call, *inputs: Any) -> Tensor:
    """ONNX's operator of the name, from before it had 16 bits and 4."""
    made: Tensor = onnx_rule(call, call.node.op, *inputs, version=21)
    return made
