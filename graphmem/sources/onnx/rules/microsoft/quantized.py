"""Products of quantized matrices, and attention and embeddings built on them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.microsoft.attention import self_attention
from graphmem.sources.onnx.rules.microsoft.normalization import unmasked_words
from graphmem.sources.onnx.rules.microsoft.of_onnx import MICROSOFT, onnx_rule, results
from graphmem.sources.onnx.rules.microsoft.qlinear import dequantized, quantized


def integer_product(
    call: Call, a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None
) -> Tensor:
    """``(a - a_zero) @ (b - b_zero)`` in int32, by ONNX's MatMulInteger."""
    nowhere = (None,) * 4
    made: Tensor = onnx_rule(
        call, "MatMulInteger", a, b, a_zero, b_zero, version=10, origins=nowhere
    )
    return made


def _with_bias(y: Tensor, bias: Tensor | None) -> Tensor:
    return y if bias is None else y + bias


@rule("MatMulIntegerToFloat", domain=MICROSOFT, constants=(2, 3))
def matmul_integer_to_float(
    call: Call,
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """The product in numbers: [..., M, K] and [..., K, N]; b's scale may be one a column."""
    product = integer_product(call, a, b, a_zero, b_zero)
    return _with_bias(product.to(a_scale.dtype) * (a_scale * b_scale), bias)


@rule("DynamicQuantizeMatMul", domain=MICROSOFT, constants=(2,))
def dynamic_quantize_matmul(
    call: Call,
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """The same of a float a, which is quantized to uint8 by its largest and smallest element."""
    small, scale, zero = dynamically_quantized(call, a)
    product = integer_product(call, small, b, zero, b_zero)
    return _with_bias(product.to(a.dtype) * (scale * b_scale), bias)


def dynamically_quantized(call: Call, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A tensor in uint8, its scale and its zero point, by ONNX's DynamicQuantizeLinear."""
    small, scale, zero = onnx_rule(call, "DynamicQuantizeLinear", x, version=11, origins=(0,))
    return small, scale, zero


@rule("QGemm", domain=MICROSOFT, constants=(1, 4, 7))
def qgemm(
    call: Call,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    c: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
) -> Tensor:
    """``alpha * a @ b + c``: quantized, or in float without ``y_scale``.

    Args:
        c: int32, in steps of ``alpha * a_scale * b_scale``.
    """
    a = a.t() if call.integer("transA", 0) else a
    b = b.t() if call.integer("transB", 0) else b
    total = integer_product(call, a, b, a_zero, b_zero)
    total = total if c is None else total + c
    y = total.to(a_scale.dtype) * (call.number("alpha", 1.0) * a_scale * b_scale)
    if y_scale is None:
        return y
    return quantized(y, y_scale, y_zero, a.dtype if y_zero is None else y_zero.dtype)


@rule("MatMulInteger16", domain=MICROSOFT)
def matmul_integer16(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """The product of int16 matrices in int32."""
    return torch.matmul(a.to(torch.int32), b.to(torch.int32))


@rule("MulInteger", domain=MICROSOFT)
def mul_integer(
    call: Call, a: Tensor, a_zero: Tensor | None, b: Tensor, b_zero: Tensor | None = None
) -> Tensor:
    """``(a - a_zero) * (b - b_zero)`` in int32."""
    return _shifted(a, a_zero) * _shifted(b, b_zero)


def _shifted(x: Tensor, zero: Tensor | None) -> Tensor:
    wide = x.to(torch.int32)
    return wide if zero is None else wide - zero.to(torch.int32)


@rule("ReduceSumInteger", domain=MICROSOFT)
def reduce_sum_integer(call: Call, x: Tensor) -> Tensor:
    """The sum along axes: int8 into int32, uint8 into uint32."""
    axes = call.integers("axes", ()) or tuple(range(x.dim()))
    total = x.to(torch.int32).sum(axes, keepdim=bool(call.integer("keepdims", 1)))
    return total.to(torch.int32 if x.dtype is torch.int8 else torch.uint32)


@rule("QAttention", domain=MICROSOFT, constants=(3, 4))
def qattention(
    call: Call,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    x_scale: Tensor,
    weight_scale: Tensor,
    mask: Tensor | None = None,
    x_zero: Tensor | None = None,
    weight_zero: Tensor | None = None,
    past: Tensor | None = None,
) -> Any:
    """Attention whose projections are a product of quantized matrices."""
    product = integer_product(call, x, weight, x_zero, weight_zero)
    projected = product.to(bias.dtype) * (x_scale * weight_scale) + bias
    return self_attention(call, projected, mask, past)


@rule("QEmbedLayerNormalization", domain=MICROSOFT, constants=(8, 9, 10, 11, 12))
def qembed_layer_normalization(
    call: Call,
    input_ids: Tensor,
    segment_ids: Tensor | None,
    word: Tensor,
    position: Tensor,
    segment: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None,
    word_scale: Tensor,
    position_scale: Tensor,
    segment_scale: Tensor | None,
    gamma_scale: Tensor,
    beta_scale: Tensor,
    word_zero: Tensor,
    position_zero: Tensor,
    segment_zero: Tensor | None,
    gamma_zero: Tensor,
    beta_zero: Tensor,
) -> Any:
    """EmbedLayerNormalization of quantized tables."""
    total = dequantized(F.embedding(input_ids.long(), word), word_scale, word_zero)
    places = position[: input_ids.shape[1]]
    total = total + dequantized(places, position_scale, position_zero)
    if segment_ids is not None and segment is not None and segment_scale is not None:
        rows = F.embedding(segment_ids.long(), segment)
        total = total + dequantized(rows, segment_scale, segment_zero)
    scale = dequantized(gamma, gamma_scale, gamma_zero)
    shift = dequantized(beta, beta_scale, beta_zero)
    y = F.layer_norm(total, scale.shape, scale, shift, call.number("epsilon", 1e-12))
    return results(call, y, unmasked_words(input_ids, mask))
