"""What aten::convolution and its backward return: the memory format that the kernels choose.

Sizes, dtypes and errors are those of torch's meta kernels. Their strides are not: they depend
on torch's version and build, and a result of two channels-last operands may be contiguous.
"""

from __future__ import annotations

from typing import Any

import torch

from graphmem.options import Target
from graphmem.targets.context import current
from graphmem.targets.cuda.cudnn import formats
from graphmem.targets.cuda.cudnn.formats import Format
from graphmem.targets.cuda.cudnn.operands import (
    Operands,
    backward_arguments,
    forward_arguments,
    in_backward,
    operands_of,
    spread,
)
from graphmem.targets.cuda.cudnn.selection import Backend, choose
from graphmem.targets.layout import Layout, layouts, on_meta
from graphmem.targets.results import results
from graphmem.targets.scratch import Call

aten = torch.ops.aten


@results(aten.convolution.default, target=Target.CUDA)
def convolution(call: Call) -> Layout:
    """Channels last where cuDNN runs and one of input and weight is; contiguous otherwise.

    Inputs: input [N, C, (D, H,) W], weight [K, C / groups, ...], bias, stride, padding,
    dilation, transposed, output_padding, groups. Result [N, K, ...].
    Source: ConvShared.cpp, ``cudnn_convolution`` and ``cudnn_convolution_backward_input``;
    PyTorch's own kernels (see ``native``) resize a new tensor.
    """
    given = forward_arguments(call)
    made: Layout = _on_meta(aten.convolution.default, given)
    operands = operands_of(given)
    backend = _backend(operands)
    if backend is Backend.EMPTY:
        return made
    form = Format.CONTIGUOUS
    if backend is Backend.CUDNN:
        form = formats.of_convolution(operands.input, operands.weight)
    return _laid_out(made, form)


@results(aten.convolution_backward.default, target=Target.CUDA)
def convolution_backward(call: Call) -> tuple[Layout | None, ...]:
    """Each gradient of cuDNN is channels last if one of the two tensors it is made of is.

    Inputs: grad_output [N, K, ...], input, weight, bias_sizes, stride, padding, dilation,
    transposed, output_padding, groups, output_mask. Results: gradients of input, weight and
    bias. Source: ConvShared.cpp, ``cudnn_convolution_backward_input`` (transposed
    ``cudnn_convolution_transpose_backward_input``), ``cudnn_convolution_backward_weight``.
    """
    given = backward_arguments(call)
    of_input, of_weight, of_bias = _on_meta(aten.convolution_backward.default, given)
    operands = operands_of(given)
    backend = _backend(operands)
    if backend is Backend.EMPTY:
        return of_input, of_weight, of_bias
    forms = (Format.CONTIGUOUS, Format.CONTIGUOUS)
    if backend is Backend.CUDNN:
        input, grad_output, _ = in_backward(
            operands, spread(given["grad_output"]), of_weight=of_weight is not None
        )
        forms = (
            formats.of_convolution(grad_output, operands.weight),
            formats.of_convolution(input, grad_output),
        )
    return (
        None if of_input is None else _laid_out(of_input, forms[0]),
        None if of_weight is None else _laid_out(of_weight, forms[1]),
        of_bias,
    )


def _on_meta(func: Any, given: dict[str, Any]) -> Any:
    """What torch's meta kernel makes of arguments, and its errors."""
    return layouts(func(*map(on_meta, given.values())))


def _backend(operands: Operands) -> Backend:
    return choose(operands.input, operands.weight, operands.geometry, current().gpu).backend


def _laid_out(made: Layout, form: Format) -> Layout:
    """A result in a format; of one dimension as if it had rows of height 1."""
    size = made.size
    if len(size) > 3:
        return made._replace(stride=formats.dense_strides(size, form))
    batch, channels, _, column = formats.dense_strides((*size[:2], 1, *size[2:]), form)
    return made._replace(stride=(batch, channels, column))
