"""Operators that ONNX had as experiments until 1.4; converters of CoreML and Keras made them.

Source: what ONNX Runtime 1.31 computes for them; it keeps them as they were.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx.registry import Call, rule


@rule("Affine")
def affine(call: Call, x: Tensor) -> Tensor:
    """``alpha * x + beta``."""
    return call.number("alpha", 1.0) * x + call.number("beta", 0.0)


@rule("Scale")
def scale(call: Call, x: Tensor) -> Tensor:
    """``scale * x``."""
    return call.number("scale", 1.0) * x


@rule("ScaledTanh")
def scaled_tanh(call: Call, x: Tensor) -> Tensor:
    """``alpha * tanh(beta * x)``."""
    return call.number("alpha") * torch.tanh(call.number("beta") * x)


@rule("ParametricSoftplus")
def parametric_softplus(call: Call, x: Tensor) -> Tensor:
    """``alpha * log(1 + exp(beta * x))``."""
    return call.number("alpha") * F.softplus(call.number("beta") * x)


@rule("ImageScaler")
def image_scaler(call: Call, x: Tensor) -> Tensor:
    """``scale * x + bias``, x [N, C, H, W], one bias a channel."""
    bias = torch.tensor(call.numbers("bias"), dtype=x.dtype, device=x.device)
    return call.number("scale", 1.0) * x + bias.reshape(-1, 1, 1)
