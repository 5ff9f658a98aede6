"""Activations of transformers, and biases fused with what follows them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.microsoft.of_onnx import MICROSOFT, results
from graphmem.sources.onnx.values import number


@rule("Gelu", domain=MICROSOFT)
def gelu(call: Call, x: Tensor) -> Tensor:
    """The exact Gaussian error linear unit."""
    return F.gelu(x)


@rule("BiasGelu", domain=MICROSOFT)
def bias_gelu(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """``gelu(a + b)``."""
    return F.gelu(a + b)


@rule("FastGelu", domain=MICROSOFT)
def fast_gelu(call: Call, x: Tensor, bias: Tensor | None = None) -> Tensor:
    """The unit by its tanh formula."""
    return F.gelu(x if bias is None else x + bias, approximate="tanh")


@rule("QuickGelu", domain=MICROSOFT)
def quick_gelu(call: Call, x: Tensor) -> Tensor:
    """``x * sigmoid(alpha * x)``; SiLU where alpha is 1."""
    alpha = call.number("alpha", 1.702)
    return F.silu(x) if alpha == 1.0 else x * torch.sigmoid(alpha * x)


@rule("ScaledSiLU", domain=MICROSOFT)
def scaled_silu(call: Call, x: Tensor, scale: Tensor | None = None) -> Tensor:
    """SiLU of the scaled input."""
    return F.silu(x * (call.number("alpha", 1.0) if scale is None else scale))


@rule("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(call: Call, x: Tensor, bias: Tensor) -> Tensor:
    """``left * gelu(right)`` of the halves of ``x + bias``: [N, S, D] becomes [N, S, D / 2]."""
    left, right = (x + bias).chunk(2, dim=-1)
    return left * F.gelu(right)


@rule("BiasAdd", domain=MICROSOFT)
def bias_add(call: Call, x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    """``x + bias + skip``."""
    return x + bias + skip


@rule("GatedAdd", domain=MICROSOFT)
def gated_add(call: Call, x: Tensor, y: Tensor, gate: Tensor) -> Tensor:
    """``x + y * gate``."""
    return x + y * gate


@rule("BiasSoftmax", domain=MICROSOFT)
def bias_softmax(call: Call, data: Tensor, bias: Tensor) -> Tensor:
    """Softmax of ``data + bias`` over all elements from ``axis`` on."""
    axis = call.integer("axis", 1) % data.dim()
    total = data + bias
    if axis == data.dim() - 1:
        return torch.softmax(total, -1)
    return torch.softmax(total.flatten(axis), -1).reshape(total.shape)


@rule("BiasDropout", domain=MICROSOFT, constants=(3,))
def bias_dropout(
    call: Call,
    data: Tensor,
    bias: Tensor,
    residual: Tensor | None = None,
    ratio: Tensor | None = None,
    training_mode: Tensor | None = None,
) -> Any:
    """``dropout(data + bias) + residual``, and the mask of what was kept."""
    total = data + bias
    output, mask = _dropout(call, total, ratio, training_mode)
    return results(call, output if residual is None else output + residual, mask)


@rule("BitmaskDropout", domain=MICROSOFT, constants=(1,))
def bitmask_dropout(
    call: Call, data: Tensor, ratio: Tensor | None = None, training_mode: Tensor | None = None
) -> Any:
    """Dropout whose mask has a bit for each element, 32 to a number, lowest first."""
    output, mask = _dropout(call, data, ratio, training_mode)
    return output if call.outputs == 1 else (output, _packed(mask))


def _dropout(
    call: Call, x: Tensor, ratio: Tensor | None, training_mode: Tensor | None
) -> tuple[Tensor, Tensor]:
    """As ONNX's Dropout: without ``training_mode``, whether the module trains decides."""
    share = number(ratio, 0.5)
    if not number(training_mode, call.training) or share == 0:
        return x, torch.ones_like(x, dtype=torch.bool)
    dropped, mask = torch.native_dropout(x, share, True)
    return dropped, mask


def _packed(mask: Tensor) -> Tensor:
    flat = mask.reshape(-1).to(torch.int64)
    words = F.pad(flat, (0, -flat.numel() % 32)).reshape(-1, 32)
    return (words << torch.arange(32, device=mask.device)).sum(1).to(torch.uint32)
