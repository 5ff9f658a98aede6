"""Random tensors, of torch's default generator.

The attribute ``seed`` is left aside: implementations of ONNX agree on distributions, not on
numbers, and no size depends on them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.registry import Call, rule

Fill = Callable[[Call, Tensor], Tensor]


def _register(op: str, fill: Fill) -> None:
    @rule(op)
    def of_shape(call: Call) -> Tensor:
        """Of the shape that an attribute says."""
        return fill(call, torch.empty(call.integers("shape"), dtype=_dtype(call, torch.float32)))

    @rule(f"{op}Like")
    def like(call: Call, x: Tensor) -> Tensor:
        """Of the shape of the input, and of its type if no other is said."""
        return fill(call, torch.empty_like(x, dtype=_dtype(call, x.dtype)))


def _dtype(call: Call, default: torch.dtype) -> torch.dtype:
    """The torch dtype that the attribute ``dtype`` says."""
    said = ElementType(call.integer("dtype")).dtype if call.has("dtype") else None
    return said or default


def _normal(call: Call, x: Tensor) -> Tensor:
    return x.normal_(call.number("mean", 0.0), call.number("scale", 1.0))


def _uniform(call: Call, x: Tensor) -> Tensor:
    return x.uniform_(call.number("low", 0.0), call.number("high", 1.0))


_register("RandomNormal", _normal)
_register("RandomUniform", _uniform)


@rule("Bernoulli", since=15)
def bernoulli(call: Call, x: Tensor) -> Tensor:
    """1 with the probability that the input says, else 0."""
    return torch.bernoulli(x).to(_dtype(call, x.dtype))


@rule("Multinomial", since=7)
def multinomial(call: Call, x: Tensor) -> Tensor:
    """``sample_size`` classes for each row of x [batch, classes], logarithms of weights."""
    drawn = torch.multinomial(torch.softmax(x, -1), call.integer("sample_size", 1), True)
    return drawn.to(_dtype(call, torch.int32))
