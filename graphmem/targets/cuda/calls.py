"""What CUDA's rules ask of a call: its arguments by place or name, and copies of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call


def argument(call: Call, position: int, name: str, default: Any = None) -> Any:
    """An argument that may be given by its place or by its name."""
    if len(call.args) > position:
        return call.args[position]
    return call.kwargs.get(name, default)


def contiguous(layout: Layout) -> bool:
    """``is_contiguous()``: rows lie one after another; dimensions of size 1 do not count."""
    expected = 1
    for size, stride in reversed(list(zip(layout.size, layout.stride, strict=True))):
        if size != 1 and stride != expected:
            return layout.numel == 0
        expected *= size
    return True


def copy_bytes(layout: Layout) -> int:
    """What ``contiguous()`` allocates: nothing if the tensor is contiguous already."""
    return 0 if contiguous(layout) else nbytes(layout)


def row_or_channels_last_bytes(layout: Layout) -> int:
    """What ``contiguous(suggest_memory_format())`` allocates for [N, C, ...].

    Nothing if it is contiguous, or the channels of a pixel lie one after another.
    """
    order = (0, *range(2, len(layout.size)), 1)
    turned = layout._replace(
        size=tuple(layout.size[i] for i in order), stride=tuple(layout.stride[i] for i in order)
    )
    return min(copy_bytes(layout), copy_bytes(turned))


def nbytes(layout: Layout, dtype: torch.dtype | None = None) -> int:
    """The bytes of as many elements, of the tensor's dtype or another."""
    return layout.numel * (dtype or layout.dtype).itemsize


def row_strides(size: Sequence[int]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    return tuple(math.prod(size[i + 1 :]) for i in range(len(size)))


def like(layout: Layout, dtype: torch.dtype) -> Layout:
    """What ``to(dtype)`` gives: a new tensor, with the same strides if that leaves no gaps.

    Source: ``TensorImpl::is_non_overlapping_and_dense`` and ``infer_dense_strides``; where
    there are gaps the order of the strides stays, which a row-major layout stands for here.
    """
    dense = _dense(layout)
    stride = layout.stride if dense else row_strides(layout.size)
    return Layout(layout.size, stride, dtype, 0, layout.numel * dtype.itemsize, -1)


def _dense(layout: Layout) -> bool:
    expected = 1
    pairs = sorted((st, si) for st, si in zip(layout.stride, layout.size, strict=True) if si != 1)
    for stride, size in pairs:
        if stride != expected:
            return False
        expected *= size
    return True
