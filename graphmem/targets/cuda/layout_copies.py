"""Kernels that read or write tensors in one layout only, and copy what lies otherwise.

Source: aten/src/ATen/native/cuda/AveragePool2d.cu, DilatedMaxPool2d.cu,
AdaptiveAveragePooling.cu, AdaptiveMaxPooling2d.cu and their 3-D kin, ReflectionPad.cu,
ReplicationPadding.cu, Im2Col.cu, Col2Im.cu, TensorTransformations.cu (``roll_cuda``), and
aten/src/ATen/native/TensorTransformations.h (``roll_common``) and TensorCompare.cpp
(``where_self_out``).
"""

from __future__ import annotations

from graphmem.options import Target
from graphmem.schedule import Scratch
from graphmem.targets.cuda.calls import argument, copy_bytes, nbytes, row_or_channels_last_bytes
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call, scratch

_POOLS = (
    "avg_pool2d",
    "avg_pool3d",
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
)


@scratch(
    *(f"aten::{pool}" for pool in _POOLS),
    *(f"aten::{pool}_backward" for pool in _POOLS),
    target=Target.CUDA,
)
def pool(call: Call) -> Scratch:
    """Inputs: (grad_output,) self [N, C, ...], row by row or channels last."""
    inputs = [arg for arg in call.args[:2] if isinstance(arg, Layout)]
    return (tuple(row_or_channels_last_bytes(arg) for arg in inputs),)


_PADS = tuple(f"{kind}_pad{rank}d" for kind in ("reflection", "replication") for rank in (1, 2, 3))


@scratch(
    *(f"aten::{pad}" for pad in _PADS),
    *(f"aten::{pad}_backward" for pad in _PADS),
    "aten::im2col",
    "aten::col2im",
    target=Target.CUDA,
)
def contiguous_input(call: Call) -> Scratch:
    """Inputs: self or grad_output, row by row."""
    return ((copy_bytes(call.args[0]),),)


@scratch("aten::roll", target=Target.CUDA)
def roll(call: Call) -> Scratch:
    """One dimension after another, each into a new tensor. Inputs: self, shifts, dims."""
    source: Layout = call.args[0]
    dims = argument(call, 2, "dims", ())
    between = max(len(dims) - 1, 0)
    return ((copy_bytes(source), *(nbytes(source),) * between),)


@scratch("aten::where", target=Target.CUDA)
def where(call: Call) -> Scratch:
    """What is not of the result's dtype is converted first. Inputs: condition, self, other."""
    values = [arg for arg in call.args[1:3] if isinstance(arg, Layout)]
    result: Layout = call.result
    wrong = [value for value in values if value.dtype is not result.dtype]
    return (tuple(nbytes(value, result.dtype) for value in wrong),)
