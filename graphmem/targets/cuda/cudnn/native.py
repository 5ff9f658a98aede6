"""PyTorch's own convolution kernels, where it does not take cuDNN's.

``Backend.COLUMNS`` unfolds one sample at a time into a matrix of columns and multiplies it
with cuBLAS. Sources: aten/src/ATen/native/cuda/ConvolutionMM2d.cu, NaiveDilatedConvolution.cu,
NaiveConvolutionTranspose2d.cu and -3d.cu; several groups, one after another:
aten/src/ATen/native/Convolution.cpp, ``_convolution`` and ``convolution_backward``.
``Backend.DEPTHWISE`` only copies what is not contiguous: DepthwiseConv2d.cu, -3d.cu.
"""

from __future__ import annotations

import math

from graphmem.devices import Gpu
from graphmem.schedule import Scratch
from graphmem.targets.cuda.cudnn.formats import Format, contiguous, nbytes, new
from graphmem.targets.cuda.cudnn.selection import Geometry
from graphmem.targets.cuda.reductions import sum_buffers
from graphmem.targets.layout import Layout
from graphmem.targets.results import fresh
from graphmem.targets.scratch import beside


def depthwise(*operands: Layout) -> tuple[int, ...]:
    """The copies of operands that are not contiguous, in bytes."""
    return tuple(contiguous(operand, Format.CONTIGUOUS)[1] for operand in operands)


def columns_forward(
    input: Layout, weight: Layout, output: Layout, geometry: Geometry
) -> tuple[int, ...]:
    """Copies, then the columns of a sample; with groups each one's result until they are joined.

    Inputs: input [N, C, (D,) H, W], weight [K, C / groups, ...] (transposed [C, K / groups,
    ...]), output [N, K, ...].
    """
    copies = depthwise(input, weight)
    columns = _columns(input, weight, output, geometry)
    if not _always_columns(geometry) and not _needs_columns(weight, geometry):
        columns = 0
    if geometry.groups == 1:
        return (*copies, columns)
    results = _parts(output, geometry.groups)
    return (*copies, *results, _group_copy(input, geometry.groups), columns)


def columns_backward(
    grad_output: Layout,
    input: Layout,
    weight: Layout,
    geometry: Geometry,
    output_mask: tuple[bool, bool],
) -> tuple[int, ...]:
    """Copies, then the columns of a sample for both gradients."""
    columns = _columns(input, weight, grad_output, geometry) if any(output_mask) else 0
    if geometry.groups == 1:
        return (*depthwise(input, weight, grad_output), columns)
    groups = geometry.groups
    of_input = _parts(input, groups) if output_mask[0] else ()
    of_weight = _parts(weight, groups) if output_mask[1] else ()
    parts = (_group_copy(grad_output, groups), _group_copy(input, groups))
    return (*depthwise(input, weight), *of_input, *of_weight, *parts, columns)


def bias_gradient(grad_output: Layout, gpu: Gpu) -> Scratch:
    """The sum of grad_output [N, K, (D,) H, W] over all but the channels, after all else.

    Source: Convolution.cpp, ``convolution_backward``; DepthwiseConv3d.cu does the same.
    """
    dims = [0, *range(2, len(grad_output.size))]
    return sum_buffers(grad_output, dims, grad_output.dtype, gpu)


def sums_in_columns(grad_output: Layout, geometry: Geometry, gpu: Gpu) -> Scratch:
    """The same in ``Backend.COLUMNS``, of a group, beside the columns.

    Dilated and 3-d kernels sum one sample at a time, and add it to the rest.
    """
    size, dtype = grad_output.size, grad_output.dtype
    group = (size[0], size[1] // geometry.groups, *size[2:])
    if geometry.transposed or not _always_columns(geometry):
        return bias_gradient(new(group, dtype, Format.CONTIGUOUS), gpu)
    sample = fresh(group[1:], dtype)
    sums = sum_buffers(sample, range(1, len(sample.size)), dtype, gpu)
    return beside((group[1] * dtype.itemsize,), sums)


def _columns(input: Layout, weight: Layout, output: Layout, geometry: Geometry) -> int:
    """Bytes of [channels of a group * kernel, positions] of one sample.

    Channels and kernel are those of the weight without its first dimension; the positions
    are the output's, and the input's if transposed.
    """
    side = input if geometry.transposed else output
    return math.prod(weight.size[1:]) * math.prod(side.size[2:]) * input.dtype.itemsize


def _always_columns(geometry: Geometry) -> bool:
    """All but the plain 2-d kernel unfold even where the columns are the sample itself."""
    return geometry.transposed or geometry.is_dilated or len(geometry.stride) == 3


def _needs_columns(weight: Layout, geometry: Geometry) -> bool:
    """``requires_columns`` of ConvolutionMM2d.cu."""
    return (
        any(k != 1 for k in weight.size[2:])
        or any(s != 1 for s in geometry.stride)
        or any(p != 0 for p in geometry.padding)
    )


def _parts(whole: Layout, groups: int) -> tuple[int, ...]:
    return (nbytes(whole) // groups,) * groups


def _group_copy(tensor: Layout, groups: int) -> int:
    """``subtensor``: a group's channels are contiguous in a batch of one only."""
    return nbytes(tensor) // groups if tensor.size[0] > 1 else 0
