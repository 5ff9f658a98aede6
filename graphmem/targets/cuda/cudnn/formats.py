"""Memory formats: how PyTorch takes a tensor's strides, and what a contiguous copy takes.

Tensors here are [N, C, (D, H,) W].
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import torch

from graphmem.targets.layout import Layout


class Format(Enum):
    """``CHANNELS_LAST`` is also that of five dimensions (``ChannelsLast3d``)."""

    CONTIGUOUS = "contiguous"
    CHANNELS_LAST = "channels last"


def _fastest_first(dims: int, form: Format) -> list[int]:
    spatial = list(range(dims - 1, 1, -1))
    return [1, *spatial, 0] if form is Format.CHANNELS_LAST else [*spatial, 1, 0]


def dense_strides(size: Sequence[int], form: Format) -> tuple[int, ...]:
    """The strides of a new tensor in a format."""
    strides = [1] * len(size)
    step = 1
    for d in _fastest_first(len(size), form):
        strides[d] = step
        step *= max(size[d], 1)
    return tuple(strides)


def is_contiguous(tensor: Layout, form: Format) -> bool:
    """Whether ``tensor.contiguous(form)`` is the tensor itself.

    Dimensions of one element may have any stride.
    Source: c10/core/Contiguity.h, ``_compute_contiguous``, ``_compute_channels_last_*``.
    """
    expected = dense_strides(tensor.size, form)
    return tensor.numel == 0 or all(
        stride == wanted
        for size, stride, wanted in zip(tensor.size, tensor.stride, expected, strict=True)
        if size != 1
    )


def suggested(tensor: Layout) -> Format:
    """``Tensor.suggest_memory_format()``: ambiguous strides count as contiguous.

    Source: c10/core/MemoryFormat.h, ``is_channels_last_strides_2d_s4``.
    """
    size, stride = tensor.size, tensor.stride
    if stride[1] == 0:
        return Format.CONTIGUOUS
    least = 0
    for d in _fastest_first(len(size), Format.CHANNELS_LAST):
        if size[d] == 0 or stride[d] < least or (d == 0 and least == stride[1]):
            return Format.CONTIGUOUS
        least = stride[d] * max(size[d], 1)
    return Format.CHANNELS_LAST


def of_convolution(first: Layout, second: Layout) -> Format:
    """The format that cuDNN runs in: channels last if one of the two operands is.

    Source: aten/src/ATen/native/ConvUtils.h, ``cudnn_conv_suggest_memory_format``.
    """
    if torch.float64 in (first.dtype, second.dtype):
        return Format.CONTIGUOUS
    if Format.CHANNELS_LAST in (suggested(first), suggested(second)):
        return Format.CHANNELS_LAST
    return Format.CONTIGUOUS


def new(size: Sequence[int], dtype: torch.dtype, form: Format) -> Layout:
    """A new tensor in a format."""
    dense = Layout(tuple(size), dense_strides(size, form), dtype, 0, 0, 0)
    return dense._replace(nbytes=nbytes(dense))


def nbytes(tensor: Layout) -> int:
    """The bytes of the elements."""
    return tensor.numel * tensor.dtype.itemsize


def contiguous(tensor: Layout, form: Format) -> tuple[Layout, int]:
    """``tensor.contiguous(form)``, and the bytes of the copy that it is, 0 if it is none."""
    if is_contiguous(tensor, form):
        return tensor, 0
    return new(tensor.size, tensor.dtype, form), nbytes(tensor)


def as_2d(tensor: Layout) -> Layout:
    """A view of [N, C, L] as [N, C, 1, L], as every 1-d convolution is run.

    Source: aten/src/ATen/native/Convolution.cpp, ``view4d``.
    """
    size, stride = tensor.size, tensor.stride
    row = size[2] * stride[2]
    return tensor._replace(
        size=(size[0], size[1], 1, size[2]), stride=(stride[0], stride[1], row, stride[2])
    )
