"""Products of matrices, and determinants."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx import unsigned
from graphmem.sources.onnx.registry import Call, rule


@rule("MatMul")
def matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """As NumPy's ``matmul``."""
    return unsigned.wrapping(torch.matmul, a, b)


@rule("Gemm")
def gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """``alpha * a @ b + beta * c``, a and b [M, K] and [K, N], or transposed; c broadcasts."""
    return unsigned.wrapping(lambda *given: _gemm(call, *given), *_given(a, b, c))


def _given(*inputs: Tensor | None) -> list[Tensor]:
    return [x for x in inputs if x is not None]


def _gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    if not a.dtype.is_floating_point:
        alpha, beta = int(alpha), int(beta)
    a = a.t() if call.integer("transA", 0) else a
    transposed = bool(call.integer("transB", 0))
    if transposed and alpha == 1 and (c is None or (beta == 1 and c.ndim == 1)):
        return F.linear(a, b, c)
    b = b.t() if transposed else b
    if c is not None:
        return torch.addmm(c, a, b, beta=beta, alpha=alpha)
    product = torch.mm(a, b)
    return product if alpha == 1 else alpha * product


@rule("Einsum", since=12)
def einsum(call: Call, *inputs: Tensor) -> Tensor:
    """A sum of products, by an equation such as ``bij,bjk->bik``."""
    equation = call.text("equation")
    return unsigned.wrapping(lambda *given: torch.einsum(equation, *given), *inputs)


@rule("Det", since=11)
def det(call: Call, x: Tensor) -> Tensor:
    """The determinants of matrices [..., M, M]; torch has them of float32 and float64."""
    wide = x.float() if x.dtype.itemsize < 4 else x
    result: Tensor = torch.linalg.det(wide)
    return result.to(x.dtype)
