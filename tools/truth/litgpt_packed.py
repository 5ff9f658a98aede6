"""4-bit layers as Fabric's plugin makes them with bitsandbytes before 0.44.

Every nn.Linear is packed, the head and those inside of LoRA's layers too, from fp16. That
version of bitsandbytes keeps the input of each product for backward, though nothing needs it,
as an attribute that lives as long as the graph; and it makes the weight in fp16 and casts it.

Source: bitsandbytes/autograd/_functions.py, ``MatMul4Bit``, at 57cfbcb7 (October 2023) and
bf015381 (March 2024); 9e753741 (July 2024, pull request 1270) took the input away. litgpt asks
for 0.41 and 0.42 (pyproject.toml at 4a9b7e62 and 00af8b0d). Lightning-AI/pytorch-lightning,
bitsandbytes.py, ``_Linear4bit``, at e7afe04ee8.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphmem.trace.adapters.packed import Packed4bit, nested_levels


class KeepingInput(Packed4bit):
    """A linear layer of 4-bit weights that keeps its input."""

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., K] -> [..., N]."""
        bias = None if self.bias is None else self.bias.to(x.dtype)
        made: Tensor = _MatMul.apply(x, self, bias)  # type: ignore[no-untyped-call]
        return made

    def whole(self, like: Tensor) -> Tensor:
        """The weight in fp16, cast to the dtype of a tensor."""
        maxima = self.maxima(like)[-1]
        return self.unpacked(maxima, self.dtype).to(like.dtype)


class _MatMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: KeepingInput, bias: Tensor | None) -> Tensor:
        ctx.layer, ctx.kept = layer, x if ctx.needs_input_grad[0] else None
        return nn.functional.linear(x, layer.whole(x), bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        return torch.matmul(gradient, ctx.layer.whole(gradient)), None, None


def pack(model: nn.Module, is_nested: bool) -> None:
    """Exchange every nn.Linear, in place; with ``is_nested`` their tables are packed too."""
    levels = nested_levels() if is_nested else None
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, KeepingInput(child, levels, dtype=torch.float16))
