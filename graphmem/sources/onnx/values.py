"""What rules do with inputs that say a size, an axis or a number: they ask for its value."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def integers(tensor: Tensor) -> list[int]:
    """The values of a tensor of integers, in order.

    In a trace these are known where they follow from shapes and constants; where they do
    not, the trace ends with an error that names the node.
    """
    return [int(value) for value in tensor.reshape(-1).tolist()]


def integer(tensor: Tensor) -> int:
    """The value of a tensor of one integer."""
    return int(tensor.reshape(()).item())


def number(tensor: Tensor | None, default: Any = None) -> Any:
    """The value of a tensor of one number; the default where it is left out."""
    return default if tensor is None else tensor.reshape(()).item()


def sizes(tensor: Tensor) -> Tensor:
    """A tensor's shape as a tensor [rank] int64."""
    return torch.tensor(tensor.shape, dtype=torch.int64)


_MOST = 1 << 12
"""Elements up to which a floating-point constant decides sizes: scales, factors, bounds of a
range. What is larger is data of a model, whose values no size follows from.
"""


def as_constant(tensor: Tensor) -> Tensor:
    """The tensor, marked as a constant of a graph: a trace keeps its values if it is small."""
    vars(tensor)["onnx_constant"] = tensor.numel() <= _MOST
    return tensor


def is_constant(tensor: Tensor) -> bool:
    """Whether a tensor is a small constant of a graph."""
    return bool(vars(tensor).get("onnx_constant", False))
