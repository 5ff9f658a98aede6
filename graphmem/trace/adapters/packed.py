"""bitsandbytes' linear layers of 4 and 8 bits: what they store, save and allocate on the way.

Of a weight of N x K elements:

1. 4 bits: ceil(N K / 2) bytes, an fp32 maximum for each block of 64, and a table of 16 fp32
   values. With ``double`` the maxima are bytes, in blocks of 256 with an fp32 maximum each;
   their mean is an fp32 scalar, and all share a table of 256 fp32 values.
2. 8 bits: N K bytes, and an fp32 scale for each row.

Forward of 4 bits makes the whole weight in the input's dtype, multiplies, and lets it go;
with ``double`` it makes the fp32 maxima before, twice, and holds them so long. Backward makes
the weight again, in the dtype that it had before it was packed, and casts it where the
gradient has another. (bitsandbytes computes in the input's dtype as well, unless that is fp16
and another was set.) Nothing is saved: the base weight is frozen, so the input is not needed.

Forward of 8 bits casts the input to fp16, makes its int8 form and an int32 product, and casts
that to fp16 and to the input's dtype. The input is kept for backward (as an attribute, not
by autograd's saving). Backward makes the weight in the input's dtype.

Below 1,537 rows bitsandbytes 0.50 may run a 4-bit kernel that makes no weight, by a table of
GPUs and sizes; here it does up to 4 rows, where it does on every GPU. Columns of outliers
(``llm_int8_threshold``) depend on values: none are assumed.

Source: bitsandbytes/nn/modules.py, ``Params4bit._quantize``, ``Linear4bit.forward``,
``Linear8bitLt.forward``; functional.py, ``quantize_4bit``, ``quantize_blockwise``,
``dequantize_4bit``; autograd/_functions.py, ``MatMul4Bit``, ``MatMul8bitLt``; backends/cuda/
ops.py, ``_dequant_linear_fallback``, ``int8_vectorwise_quant``, ``int8_mm_dequant``
(bitsandbytes 0.50.2). Versions before 0.50 always make the weight.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphmem.schedule import Unknown
from graphmem.targets import context
from graphmem.targets.cuda.bitsandbytes import FUSED_ROWS
from graphmem.trace.adapters.marks import table

BLOCK, NESTED, NESTED_LEVELS = 64, 256, 256
MAYBE_FUSED_ROWS = 1536
_EITHER = Unknown(
    "whether a 4-bit product makes its whole weight",
    f"bitsandbytes, up to {MAYBE_FUSED_ROWS:,} rows: by GPU and size since version 0.50",
    "it does",
)
_OUTLIERS = Unknown("columns of outliers in 8-bit products", "bitsandbytes", "there are none")
OUTLIERS = 6.0
"""transformers' ``llm_int8_threshold``."""


class Packed4bit(nn.Linear):
    """A linear layer of 4-bit weights."""

    def __init__(
        self, linear: nn.Linear, levels: nn.Parameter | None, *, dtype: torch.dtype | None
    ) -> None:
        """Pack a layer's weight; ``levels`` are given where the maxima are packed too."""
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.nested = double = levels is not None
        self.levels = levels  # shared by all layers
        self.dtype = dtype or linear.weight.dtype
        count = linear.in_features * linear.out_features
        blocks = -(-count // BLOCK)
        self.weight = table(_new(-(-count // 2), 1, dtype=torch.uint8), stands_for=count)
        self.code = table(_new(16))
        self.absmax = table(_new(blocks, dtype=torch.uint8 if double else torch.float32))
        if double:
            self.absmax2 = table(_new(-(-blocks // NESTED)))
            self.offset = table(_new())
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., K] -> [..., N]."""
        bias = None if self.bias is None else self.bias.to(x.dtype)
        made: Tensor = _MatMul4bit.apply(x, self, bias)  # type: ignore[no-untyped-call]
        return made

    def maxima(self, like: Tensor) -> tuple[Tensor, ...]:
        """The blocks' maxima in fp32, the last of these tensors; packed ones are made."""
        if not self.nested:
            return (self.absmax,)
        made = like.new_empty(self.absmax.shape, dtype=torch.float32)
        return made, made + self.offset

    def unpacked(self, maxima: Tensor, dtype: torch.dtype) -> Tensor:
        """The whole weight, N x K."""
        made = maxima.new_empty((self.out_features, self.in_features), dtype=dtype)
        return made.mul_(maxima.view(-1)[0])


class _MatMul4bit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Packed4bit, bias: Tensor | None) -> Tensor:
        ctx.layer, ctx.bias = layer, None if bias is None else bias.dtype
        told = context.current()
        kernel = told.decided(_kernel, x)
        if kernel == "fused":
            return x.new_empty((*x.shape[:-1], layer.out_features))
        if kernel == "either":
            told.note(_EITHER)
        maxima = layer.maxima(x)  # both are held until the product is made
        return nn.functional.linear(x, layer.unpacked(maxima[-1], x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        layer: Packed4bit = ctx.layer
        of_bias = None
        if ctx.bias is not None and ctx.needs_input_grad[2]:
            of_bias = gradient.reshape(-1, gradient.shape[-1]).sum(0, dtype=ctx.bias)
        if not ctx.needs_input_grad[0]:
            return None, None, of_bias
        weight = _dequantized(layer, gradient)
        return torch.matmul(gradient, weight.to(gradient.dtype)), None, of_bias


def _dequantized(layer: Packed4bit, like: Tensor) -> Tensor:
    """The weight in its own dtype; fp32 maxima are shifted in place and let go."""
    if not layer.nested:
        return layer.unpacked(layer.absmax, layer.dtype)
    maxima = like.new_empty(layer.absmax.shape, dtype=torch.float32)
    return layer.unpacked(maxima.add_(layer.offset), layer.dtype)


def _kernel(x: Tensor) -> str:
    """Whether a product of so many rows makes its weight (``whole``) or not (``fused``)."""
    rows = x.numel() // x.shape[-1]
    if rows <= FUSED_ROWS:
        return "fused"
    return "either" if rows <= MAYBE_FUSED_ROWS else "whole"


class Packed8bit(nn.Linear):
    """A linear layer of 8-bit weights."""

    def __init__(self, linear: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        shape = (self.out_features, self.in_features)
        count = self.out_features * self.in_features
        self.weight = table(_new(*shape, dtype=torch.int8), stands_for=count)
        self.scale = table(_new(self.out_features))
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., K] -> [..., N]."""
        bias = None if self.bias is None else self.bias.to(x.dtype)
        made: Tensor = _MatMul8bit.apply(x, self, bias)  # type: ignore[no-untyped-call]
        return made


class _MatMul8bit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Packed8bit, bias: Tensor | None) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        ctx.layer, ctx.shape, ctx.bias = layer, x.shape, None if bias is None else bias.dtype
        context.current().note(_OUTLIERS)
        codes, _scales = _quantized(rows.to(torch.float16))  # held to the end
        product = codes.new_empty((rows.shape[0], layer.out_features), dtype=torch.int32)
        made = product.new_empty(product.shape, dtype=torch.float16)
        made.zero_()  # of the product and both scales, by one kernel
        if bias is not None:
            made.add_(bias)
        ctx.kept = rows if ctx.needs_input_grad[0] else None
        return made.to(x.dtype).reshape(*x.shape[:-1], layer.out_features)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        layer: Packed8bit = ctx.layer
        of_bias = None
        rows = gradient.reshape(-1, gradient.shape[-1]).contiguous()
        if ctx.bias is not None and ctx.needs_input_grad[2]:
            of_bias = rows.sum(0, dtype=ctx.bias)
        if not ctx.needs_input_grad[0]:
            return None, None, of_bias
        dtype = ctx.kept.dtype
        weight = layer.weight.to(dtype, copy=True).mul_(layer.scale.unsqueeze(1).mul(1 / 127))
        return torch.matmul(rows.to(dtype), weight).view(ctx.shape), None, of_bias


def _quantized(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The int8 form of fp16 rows and its fp32 scales; where outliers are is asked for."""
    scales = rows.new_empty(rows.shape[0], dtype=torch.float32)
    codes = rows.new_empty(rows.shape, dtype=torch.int8)
    _outliers = rows.abs() >= OUTLIERS
    return codes, scales


def nested_levels() -> nn.Parameter:
    """The table of 256 values that all packed tables of maxima share."""
    return table(_new(NESTED_LEVELS))


def _new(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")
