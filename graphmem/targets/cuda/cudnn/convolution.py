"""aten::convolution and its backward: workspaces of cuDNN, and transient copies.

cuDNN runs channels last if one operand is; the other is copied for the time of the call,
and again in backward. The bias is added outside of cuDNN.
Sources: aten/src/ATen/native/Convolution.cpp (``_convolution``, ``convolution_backward``),
aten/src/ATen/native/cudnn/ConvShared.cpp (torch 2.13).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch

from graphmem.devices import Gpu
from graphmem.options import Target
from graphmem.schedule import Scratch, Unknown
from graphmem.targets.context import current
from graphmem.targets.cuda.cudnn import formats, native, table
from graphmem.targets.cuda.cudnn.backend import Kind
from graphmem.targets.cuda.cudnn.formats import Format
from graphmem.targets.cuda.cudnn.library import Library, load
from graphmem.targets.cuda.cudnn.operands import (
    Operands,
    backward_arguments,
    forward_arguments,
    in_backward,
    operands_of,
    spread,
)
from graphmem.targets.cuda.cudnn.plans import (
    Mode,
    Operand,
    Problem,
    largest_workspace,
    workspace,
)
from graphmem.targets.cuda.cudnn.selection import Backend, Choice, Geometry, choose
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call, InTurn, beside, scratch

Mask = tuple[bool, bool, bool]
"""Which gradients are asked for: of input, weight and bias."""


@scratch("aten::convolution", target=Target.CUDA)
def convolution(call: Call) -> Scratch:
    """Copies of operands in another format, then cuDNN's workspace, all alive together.

    Inputs: input [N, C, (D, H,) W], weight [K, C / groups, ...], bias, stride, padding,
    dilation, transposed, output_padding, groups. Result [N, K, ...].
    Source: ConvShared.cpp, ``cudnn_convolution_forward_out`` and, transposed,
    ``cudnn_convolution_backward_input``.
    """
    operands = operands_of(forward_arguments(call))
    output = spread(call.result)
    choice = _choose("aten::convolution", operands, call.gpu)
    if choice.backend is Backend.EMPTY:
        return ()
    if choice.backend is Backend.DEPTHWISE:
        return ((operands.copied, *native.depthwise(operands.input, operands.weight)),)
    if choice.backend is Backend.COLUMNS:
        blocks = native.columns_forward(operands.input, operands.weight, output, operands.geometry)
        return ((operands.copied, *blocks),)
    return (_cudnn_forward(operands, output, call.gpu),)


def _cudnn_forward(operands: Operands, output: Layout, gpu: Gpu) -> tuple[int, ...]:
    form = formats.of_convolution(operands.input, operands.weight)
    input, input_copy = formats.contiguous(operands.input, form)
    run = _data_gradient if operands.geometry.transposed else _forward
    blocks = run(input, operands.weight, output.size, operands.geometry, gpu)
    return (operands.copied, input_copy, *blocks)


@scratch("aten::convolution_backward", target=Target.CUDA)
def convolution_backward(call: Call) -> Scratch | InTurn:
    """The gradient of the input, of the weight, then of the bias, which is a sum.

    Inputs: grad_output [N, K, ...], input [N, C, ...], weight, bias_sizes, stride, padding,
    dilation, transposed, output_padding, groups, output_mask.
    Source: Convolution.cpp, ``convolution_backward``.
    """
    given = backward_arguments(call)
    operands, grad_output = operands_of(given), spread(given["grad_output"])
    of_input, of_weight, of_bias = map(bool, given["output_mask"])
    mask = (of_input, of_weight, of_bias)
    choice = _choose("aten::convolution_backward", operands, call.gpu)
    if choice.backend is Backend.EMPTY:
        return ()
    if choice.backend is not Backend.CUDNN:
        return _native_backward(choice.backend, operands, grad_output, mask, call.gpu)
    both = _cudnn_backward(operands, grad_output, mask, call.gpu)
    return InTurn((*both, _sum(operands, grad_output, call.gpu) if mask[2] else ()))


def _sum(operands: Operands, grad_output: Layout, gpu: Gpu) -> Scratch:
    return beside((operands.copied,), native.bias_gradient(grad_output, gpu))


def _native_backward(
    backend: Backend, operands: Operands, grad_output: Layout, mask: Mask, gpu: Gpu
) -> Scratch:
    input, weight, geometry = operands.input, operands.weight, operands.geometry
    if backend is Backend.DEPTHWISE:
        copies = (operands.copied, *native.depthwise(grad_output, input, weight))
        return (copies, *(_sum(operands, grad_output, gpu) if mask[2] else ()))
    blocks = native.columns_backward(grad_output, input, weight, geometry, mask[:2])
    sums = native.sums_in_columns(grad_output, geometry, gpu) if mask[2] else ()
    return beside((operands.copied, *blocks), sums)


def _cudnn_backward(
    operands: Operands, grad_output: Layout, mask: Mask, gpu: Gpu
) -> tuple[Scratch, Scratch]:
    """For the gradients of input and weight.

    Copies of the input and of grad_output in the input's format live through both; each
    copies what it needs in its own format.
    Source: ConvShared.cpp, ``cudnn_convolution_backward`` and
    ``cudnn_convolution_transpose_backward``.
    """
    weight, geometry = operands.weight, operands.geometry
    input, grad_output, copies = in_backward(operands, grad_output, of_weight=mask[1])
    kept = (operands.copied, *copies)
    of_input: Scratch = ()
    of_weight: Scratch = ()
    if mask[0]:
        run = _forward if geometry.transposed else _data_gradient
        of_input = ((*kept, *run(grad_output, weight, input.size, geometry, gpu)),)
    if mask[1]:
        x, y = (grad_output, input) if geometry.transposed else (input, grad_output)
        of_weight = ((*kept, *_filter_gradient(x, weight, y, geometry, gpu)),)
    return of_input, of_weight


# -- the three convolutions of cuDNN: blocks, in the order of their allocation


def _forward(
    x: Layout, weight: Layout, size: tuple[int, ...], geometry: Geometry, gpu: Gpu
) -> tuple[int, ...]:
    """``cudnn_convolution_forward_out``: weight and x in the format of the new y."""
    y = formats.new(size, x.dtype, formats.of_convolution(x, weight))
    form = formats.suggested(y)
    weight, weight_copy = formats.contiguous(weight, form)
    x, x_copy = formats.contiguous(x, form)
    return (weight_copy, x_copy, _asked(Kind.FORWARD, x, weight, y, geometry, gpu))


def _data_gradient(
    y: Layout, weight: Layout, size: tuple[int, ...], geometry: Geometry, gpu: Gpu
) -> tuple[int, ...]:
    """``cudnn_convolution_backward_input``: x, of ``size``, from y and the weight."""
    form = formats.of_convolution(y, weight)
    x = formats.new(size, y.dtype, form)
    weight, weight_copy = formats.contiguous(weight, form)
    y, y_copy = formats.contiguous(y, form)
    return (weight_copy, y_copy, _asked(Kind.DATA_GRADIENT, x, weight, y, geometry, gpu))


def _filter_gradient(
    x: Layout, weight: Layout, y: Layout, geometry: Geometry, gpu: Gpu
) -> tuple[int, ...]:
    """``cudnn_convolution_backward_weight``: the new weight gradient from x and y."""
    form = formats.of_convolution(x, y)
    y, y_copy = formats.contiguous(y, form)
    x, x_copy = formats.contiguous(x, form)
    gradient = formats.new(weight.size, x.dtype, form)
    return (y_copy, x_copy, _asked(Kind.FILTER_GRADIENT, x, gradient, y, geometry, gpu))


# -- asking


def _asked(kind: Kind, x: Layout, weight: Layout, y: Layout, geometry: Geometry, gpu: Gpu) -> int:
    """The workspace of one convolution in bytes, from the library or the table."""
    if 0 in (x.numel, weight.numel, y.numel):
        return 0
    problem = _problem(kind, x, weight, y, geometry)
    library = load()
    if isinstance(library, Library) and gpu.sm >= library.oldest_sm:
        return _of_library(library, gpu, problem)
    current().note(table.unknown(library, gpu))
    return table.assumed(problem)


def _of_library(library: Library, gpu: Gpu, problem: Problem) -> int:
    """In benchmark mode the first call takes the largest workspace, to try all plans in it."""
    nbytes = workspace(library, gpu, problem)
    if nbytes is None:
        current().note(_no_engine(library, gpu, problem))
        return 0
    if not torch.backends.cudnn.benchmark:
        return nbytes
    current().note(_BENCHMARK)
    first = current().is_first(problem)
    return largest_workspace(library, gpu, problem) if first else nbytes


_BENCHMARK = Unknown(
    "which plan torch.backends.cudnn.benchmark finds the fastest",
    "aten::convolution, aten::convolution_backward",
    "after the first call of a shape the plan that cuDNN's heuristics rank first; the cache "
    "is not emptied after that call",
)


def _no_engine(library: Library, gpu: Gpu, problem: Problem) -> Unknown:
    return Unknown(
        f"{library.name} has no engine for a convolution on {gpu.name}",
        f"input {list(problem.x.size)}, weight {list(problem.w.size)}, {problem.dtype}",
        "no workspace; the real run ends with an error",
    )


def _problem(kind: Kind, x: Layout, weight: Layout, y: Layout, geometry: Geometry) -> Problem:
    cudnn = torch.backends.cudnn
    form = formats.of_convolution(x, weight)
    return Problem(
        kind,
        _operand(x, form),
        _operand(weight, form),
        _operand(y, form),
        geometry.padding,
        geometry.stride,
        geometry.dilation,
        x.dtype,
        allow_tf32=_allows_tf32(),
        deterministic=cudnn.deterministic or torch.are_deterministic_algorithms_enabled(),
        mode=heuristics_mode(os.environ),
    )


def _allows_tf32() -> bool:
    """``Context::allowTF32CuDNN(Float32Op::CONV)``, also where the user set it by its old name."""
    precision: str = torch._C._get_fp32_precision_getter("cuda", "conv")
    return precision == "tf32"


def heuristics_mode(environment: Mapping[str, str]) -> Mode:
    """The mode that ``TORCH_CUDNN_USE_HEURISTIC_MODE_B`` asks for (ConvUtils.h)."""
    asked = environment.get("TORCH_CUDNN_USE_HEURISTIC_MODE_B") == "1"
    return Mode.B if asked else Mode.INSTANT


def _operand(tensor: Layout, form: Format) -> Operand:
    """Strides of dimensions of one element are as in a dense tensor (``fixSizeOneDimStride``)."""
    dense = formats.dense_strides(tensor.size, form)
    stride = tuple(
        new if n == 1 else old
        for n, old, new in zip(tensor.size, tensor.stride, dense, strict=True)
    )
    return Operand(tensor.size, stride, _alignment(tensor))


def _alignment(tensor: Layout) -> int:
    """The largest power of two up to 32 that divides the address (``getAlignment``).

    The caching allocator's blocks start at multiples of 512 (kMinBlockSize).
    """
    offset = tensor.offset * tensor.dtype.itemsize
    return min(32, offset & -offset) if offset else 32


def _choose(op: str, operands: Operands, gpu: Gpu) -> Choice:
    choice = choose(operands.input, operands.weight, operands.geometry, gpu)
    kernel, library = choice.backend.value, load()
    if choice.backend is Backend.CUDNN and isinstance(library, Library):
        kernel = library.name
    if choice.backend is not Backend.EMPTY:
        current().chose(op, kernel, choice.why)
    return choice
