"""Products and convolutions with what ONNX Runtime fuses into them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.microsoft.activations import (
    activate_by_names,
    activate_by_params,
)
from graphmem.sources.onnx.rules.microsoft.of_onnx import MICROSOFT, onnx_rule
from graphmem.sources.onnx.values import integers


@rule("FusedConv", domain=MICROSOFT)
def fused_conv(
    call: Call, x: Tensor, w: Tensor, b: Tensor | None = None, z: Tensor | None = None
) -> Tensor:
    """``activation(conv(x, w, b) + z)``; layout as ONNX's Conv."""
    y = onnx_rule(call, "Conv", x, w, b)
    return activate_by_params(call, y if z is None else y + z)


@rule("ConvTransposeWithDynamicPads", domain=MICROSOFT)
def conv_transpose_with_dynamic_pads(
    call: Call, x: Tensor, w: Tensor, pads: Tensor | None = None, b: Tensor | None = None
) -> Tensor:
    """ONNX's ConvTranspose with its pads as an input."""
    places = (0, 1, None)
    if pads is None:
        made: Tensor = onnx_rule(call, "ConvTranspose", x, w, b, origins=places)
        return made
    given = tuple(integers(pads))
    padded: Tensor = onnx_rule(call, "ConvTranspose", x, w, b, origins=places, pads=given)
    return padded


@rule("FusedGemm", domain=MICROSOFT)
def fused_gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """``activation(alpha * a @ b + beta * c)``."""
    return activate_by_names(call, onnx_rule(call, "Gemm", a, b, c))


@rule("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """``alpha * a @ b``, either transposed first as the attributes say.

    ``transBatchA`` of a [d0, d1, ..., M, K]: the first dimension goes behind the others of the
    batch, as [d1, ..., M, d0, K]; ``transA`` swaps the last two afterwards.
    Source: onnxruntime/core/providers/cpu/math/matmul_helper.h, MatMulComputeHelper.
    """
    a = _transposed(a, call.integer("transA", 0), call.integer("transBatchA", 0))
    b = _transposed(b, call.integer("transB", 0), call.integer("transBatchB", 0))
    alpha = call.number("alpha", 1.0)
    product = torch.matmul(a, b)
    return product if alpha == 1.0 else product * alpha


@rule("FusedMatMulActivation", domain=MICROSOFT)
def fused_matmul_activation(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """FusedMatMul with an activation."""
    return activate_by_names(call, fused_matmul(call, a, b))


@rule("GemmFastGelu", domain=MICROSOFT)
def gemm_fast_gelu(call: Call, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    """``gelu(x @ w + bias)`` by tanh."""
    y = torch.matmul(x, w)
    return torch.nn.functional.gelu(y if bias is None else y + bias, approximate="tanh")


@rule("SparseToDenseMatMul", domain=MICROSOFT)
def sparse_to_dense_matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """``alpha * a @ b``, where a was sparse in the file; 1-D operands are not transposed."""
    a = a.to_dense() if a.is_sparse or a.layout is torch.sparse_csr else a
    a = _transposed(a, call.integer("transA", 0), 0)
    b = _transposed(b, call.integer("transB", 0), 0)
    return torch.matmul(a, b) * call.number("alpha", 1.0)


def _transposed(x: Tensor, last: int, batch: int) -> Tensor:
    if x.dim() < 2:
        return x
    if batch:
        order: list[Any] = [*range(1, x.dim() - 1), 0, x.dim() - 1]
        x = x.permute(order)
    return x.transpose(-1, -2) if last else x
