"""Operators that work element by element."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem.sources.onnx.registry import Call, rule


@rule("Relu")
def relu(call: Call, x: Tensor) -> Tensor:
    """``max(x, 0)``."""
    return torch.relu(x)


@rule("Add", since=7)
def add(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """A sum; shapes broadcast as in NumPy."""
    return a + b
