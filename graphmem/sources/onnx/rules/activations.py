"""Activations, as ``torch.nn.functional`` has them where it does."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx.families import unary
from graphmem.sources.onnx.registry import Call, rule

for _op, _function in {
    "HardSwish": F.hardswish,
    "Mish": F.mish,
    "Relu": torch.relu,
    "Sigmoid": torch.sigmoid,
    "Softsign": F.softsign,
    "Tanh": torch.tanh,
}.items():
    unary(_op, _function)

_LINEAR = 40.0
"""Where softplus is the identity to the last bit of a double: exp(-40) < 2^-57."""


@rule("Softplus")
def softplus(call: Call, x: Tensor) -> Tensor:
    """``log(1 + exp(x))``."""
    return F.softplus(x, threshold=_LINEAR)


@rule("Elu")
def elu(call: Call, x: Tensor) -> Tensor:
    """``x``, or ``alpha * (exp(x) - 1)`` where it is negative."""
    return F.elu(x, call.number("alpha", 1.0))


@rule("Selu")
def selu(call: Call, x: Tensor) -> Tensor:
    """Elu times gamma, in rounder numbers than since opset 6."""
    return _scaled_elu(call, x, 1.6732, 1.0507)


@rule("Selu", since=6)
def selu_exact(call: Call, x: Tensor) -> Tensor:
    """Elu times gamma, in one operator, as ``F.selu`` calls it.

    Source of the defaults: ``onnx/defs/math/defs.cc``.
    """
    return _scaled_elu(call, x, 1.67326319217681884765625, 1.05070102214813232421875)


def _scaled_elu(call: Call, x: Tensor, alpha: float, gamma: float) -> Tensor:
    result: Tensor = torch.ops.aten.elu(x, call.number("alpha", alpha), call.number("gamma", gamma))
    return result


@rule("Celu", since=12)
def celu(call: Call, x: Tensor) -> Tensor:
    """``max(x, 0) + min(0, alpha * (exp(x / alpha) - 1))``."""
    return F.celu(x, call.number("alpha", 1.0))


@rule("LeakyRelu")
def leaky_relu(call: Call, x: Tensor) -> Tensor:
    """``x``, or ``alpha * x`` where it is negative."""
    return F.leaky_relu(x, call.number("alpha", 0.01))


@rule("ThresholdedRelu")
def thresholded_relu(call: Call, x: Tensor) -> Tensor:
    """``x`` where it is above alpha, else 0."""
    return F.threshold(x, call.number("alpha", 1.0), 0.0)


@rule("HardSigmoid")
def hard_sigmoid(call: Call, x: Tensor) -> Tensor:
    """``alpha * x + beta`` between 0 and 1; with alpha 1/6 torch has an operator for it."""
    alpha, beta = call.number("alpha", 0.2), call.number("beta", 0.5)
    if beta == 0.5 and math.isclose(alpha, 1 / 6, rel_tol=torch.finfo(torch.float32).eps):
        return F.hardsigmoid(x)
    return torch.clamp(alpha * x + beta, 0.0, 1.0)


@rule("Gelu", since=20)
def gelu(call: Call, x: Tensor) -> Tensor:
    """``x`` times the normal distribution's share below it, or the approximation by tanh."""
    return F.gelu(x, approximate=call.text("approximate", "none"))


@rule("Swish", since=24)
def swish(call: Call, x: Tensor) -> Tensor:
    """``x * sigmoid(alpha * x)``."""
    alpha = call.number("alpha", 1.0)
    return F.silu(x) if alpha == 1.0 else x * torch.sigmoid(alpha * x)


@rule("SwiGLU", since=28)
def swiglu(call: Call, gate: Tensor, value: Tensor) -> Tensor:
    """Swish of the gate, times the value."""
    result: Tensor = swish(call, gate) * value
    return result


@rule("PRelu")
def prelu_by_channel(call: Call, x: Tensor, slope: Tensor) -> Tensor:
    """``x``, or ``slope * x`` where it is negative; one slope, or one a channel."""
    return F.prelu(x, slope.reshape(-1))


@rule("PRelu", since=7)
def prelu(call: Call, x: Tensor, slope: Tensor) -> Tensor:
    """The same with a slope that broadcasts; torch's own where it is one a channel."""
    if not x.dtype.is_signed:
        return x
    channels = (x.shape[1], *[1] * (x.ndim - 2)) if x.ndim > 1 else ()
    if x.dtype.is_floating_point and (slope.numel() == 1 or tuple(slope.shape) == channels):
        return F.prelu(x, slope.reshape(-1))
    return torch.where(x < 0, slope * x, x)


@rule("Shrink", since=9)
def shrink(call: Call, x: Tensor) -> Tensor:
    """0 within lambd of 0, else ``x`` moved towards 0 by bias."""
    bias, lambd = call.number("bias", 0.0), call.number("lambd", 0.5)
    if x.dtype.is_floating_point and bias in (0.0, lambd):
        return F.softshrink(x, lambd) if bias else F.hardshrink(x, lambd)
    outside = torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, 0))
    return outside.to(x.dtype)


def _hardmax(x: Tensor, dim: int) -> Tensor:
    """1 at the first of the largest, else 0."""
    largest = torch.argmax(x, dim, keepdim=True)
    return torch.zeros_like(x).scatter_(dim, largest, 1)


def _over_axis(op: str, function: Callable[[Tensor, int], Tensor]) -> None:
    @rule(op)
    def flattened(call: Call, x: Tensor) -> Tensor:
        """Over all dimensions from ``axis`` on, as if they were one (before opset 13)."""
        axis = call.integer("axis", 1)
        axis += x.ndim if axis < 0 else 0
        if axis == x.ndim - 1:
            return function(x, axis)
        return function(x.flatten(axis), axis).reshape(x.shape)

    @rule(op, since=13)
    def over_axis(call: Call, x: Tensor) -> Tensor:
        """Over the dimension ``axis``."""
        return function(x, call.integer("axis", -1))


def _softmax(x: Tensor, dim: int) -> Tensor:
    return F.softmax(x, dim)


def _log_softmax(x: Tensor, dim: int) -> Tensor:
    return F.log_softmax(x, dim)


_over_axis("Softmax", _softmax)
_over_axis("LogSoftmax", _log_softmax)
_over_axis("Hardmax", _hardmax)
