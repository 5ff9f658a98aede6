"""The arguments of aten::convolution and its backward, as PyTorch hands them to kernels.

A 1-d convolution runs as a 2-d one over rows of height 1.
Source: aten/src/ATen/native/Convolution.cpp, ``_convolution`` and ``convolution_backward``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphmem.targets.cuda.cudnn import formats
from graphmem.targets.cuda.cudnn.formats import Format
from graphmem.targets.cuda.cudnn.selection import Geometry
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call

_GEOMETRY = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
_FORWARD = ("input", "weight", "bias", *_GEOMETRY)
_BACKWARD = ("grad_output", "input", "weight", "bias_sizes", *_GEOMETRY, "output_mask")


@dataclass(frozen=True, slots=True)
class Operands:
    """A call's input and weight in at least two spatial dimensions.

    ``copied`` are the bytes of the contiguous copy that a 1-d convolution makes of an input
    that is not, 0 otherwise.
    """

    input: Layout
    weight: Layout
    geometry: Geometry
    copied: int


def forward_arguments(call: Call) -> dict[str, Any]:
    """The arguments of aten::convolution by name, in the order of its schema."""
    return {**dict(zip(_FORWARD, call.args, strict=False)), **call.kwargs}


def backward_arguments(call: Call) -> dict[str, Any]:
    """The arguments of aten::convolution_backward by name, in the order of its schema."""
    return {**dict(zip(_BACKWARD, call.args, strict=False)), **call.kwargs}


def operands_of(given: Mapping[str, Any]) -> Operands:
    """The operands among arguments: input [N, C, (D, H,) W], weight [K, C / groups, ...]."""
    input: Layout = given["input"]
    dims = len(input.size) - 2
    geometry = Geometry(
        _expanded(given["stride"], dims, 1),
        _expanded(given["padding"], dims, 0),
        _expanded(given["dilation"], dims, 1),
        bool(given["transposed"]),
        _expanded(given["output_padding"], dims, 0),
        int(given["groups"]),
    )
    copied = 0
    if dims == 1:
        input, copied = formats.contiguous(input, Format.CONTIGUOUS)
    return Operands(spread(input), spread(given["weight"]), geometry, copied)


def _expanded(numbers: Any, dims: int, of_new: int) -> tuple[int, ...]:
    """One number a spatial dimension; a 1-d convolution gets one of height 1 before it."""
    values = tuple(map(int, numbers))
    values = values * dims if len(values) == 1 else values
    return (of_new, *values) if dims == 1 else values


def spread(tensor: Layout) -> Layout:
    """[N, C, L] as [N, C, 1, L]; others as they are."""
    return formats.as_2d(tensor) if len(tensor.size) == 3 else tensor


def in_backward(
    operands: Operands, grad_output: Layout, *, of_weight: bool
) -> tuple[Layout, Layout, tuple[int, int]]:
    """Input and grad_output as cuDNN's backward has them, and the bytes of their copies.

    The input is brought in the convolution's format if the weight's gradient is asked for,
    then grad_output in the input's: not transposed, ``Tensor.to(format)`` copies only where
    the suggested formats differ; transposed it is ``contiguous(format)``.
    Source: aten/src/ATen/native/cudnn/ConvShared.cpp, ``cudnn_convolution_backward`` and
    ``cudnn_convolution_transpose_backward``.
    """
    input, input_copy = operands.input, 0
    if of_weight:
        form = formats.of_convolution(input, operands.weight)
        input, input_copy = formats.contiguous(input, form)
    form = formats.suggested(input)
    if not operands.geometry.transposed and formats.suggested(grad_output) is form:
        return input, grad_output, (input_copy, 0)
    grad_output, grad_copy = formats.contiguous(grad_output, form)
    return input, grad_output, (input_copy, grad_copy)
