"""Activations that ONNX Runtime fuses into the operator before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx.refusal import refused
from graphmem.sources.onnx.registry import Call

_Activation = Callable[[Tensor, Sequence[float]], Tensor]


def _hard_sigmoid(x: Tensor, p: Sequence[float]) -> Tensor:
    return torch.clamp(x * p[0] + p[1], 0.0, 1.0)


_DEFAULTS: Mapping[str, tuple[float, ...]] = {
    "LeakyRelu": (0.01,),
    "HardSigmoid": (0.2, 0.5),
    "Elu": (1.0,),
    "ThresholdedRelu": (1.0,),
    "Selu": (1.67326319217681884765625, 1.05070102214813232421875),
    "QuickGelu": (1.0,),
}
"""ONNX's defaults of the operators' attributes, in the order of the parameters."""

_ACTIVATIONS: Mapping[str, _Activation] = {
    "Relu": lambda x, p: torch.relu(x),
    "Sigmoid": lambda x, p: torch.sigmoid(x),
    "Tanh": lambda x, p: torch.tanh(x),
    "LeakyRelu": lambda x, p: F.leaky_relu(x, p[0]),
    "Clip": lambda x, p: torch.clamp(x, p[0], p[1]),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": lambda x, p: F.hardswish(x),
    "Elu": lambda x, p: F.elu(x, p[0]),
    "Selu": lambda x, p: p[1] * F.elu(x, p[0]),
    "Softplus": lambda x, p: F.softplus(x),
    "Softsign": lambda x, p: F.softsign(x),
    "ThresholdedRelu": lambda x, p: F.threshold(x, p[0], 0.0),
    "Gelu": lambda x, p: F.gelu(x),
    "QuickGelu": lambda x, p: x * torch.sigmoid(p[0] * x),
}


def activate(call: Call, name: str, x: Tensor, parameters: Sequence[float] = ()) -> Tensor:
    """A fused activation; the parameters are ONNX's attributes: alpha, beta, gamma.

    Raises:
        UnsupportedOpError: ONNX Runtime has no such fusion.

    Source: onnxruntime/core/optimizer/conv_activation_fusion.cc and gemm_activation_fusion.cc.
    """
    if not name:
        return x
    if name not in _ACTIVATIONS:
        raise refused(call, f"no rule for the fused activation {name}")
    return _ACTIVATIONS[name](x, tuple(parameters) or _DEFAULTS.get(name, ()))


def activate_by_params(call: Call, x: Tensor) -> Tensor:
    """The activation of attributes ``activation`` and ``activation_params``."""
    return activate(call, call.text("activation", ""), x, call.numbers("activation_params", ()))


def activate_by_names(call: Call, x: Tensor) -> Tensor:
    """The activation of attributes ``activation`` and ``activation_alpha``, beta, gamma."""
    name = call.text("activation", "")
    if name == "Softmax":
        return torch.softmax(x, call.integer("activation_axis", -1))
    given = [call.get(f"activation_{which}") for which in ("alpha", "beta", "gamma")]
    return activate(call, name, x, [g for g in given if g is not None])
