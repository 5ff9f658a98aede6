"""Scratch of the CPU's kernels, so that a real run on the CPU checks all the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from graphmem.options import Target
from graphmem.targets.cuda.sharding import padded
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call, scratch

# aten/src/ATen/native/Copy.cpp, copy_transpose_valid and copy_same_type_transpose_
# (torch 2.13): the side of the block that is transposed at a time.
_TRANSPOSE_BLOCK = 60
_TRANSPOSE_BLOCK_OF_BYTES = 120


@scratch("aten::addmm", target=Target.CPU)
def addmm(call: Call) -> int:
    """``self`` is copied into the result first; a transposed one goes through a block.

    Inputs: self [N, P] (or one that expands to it), mat1 [N, M], mat2 [M, P].
    Source: aten/src/ATen/native/LinearAlgebra.cpp, ``addmm_impl_cpu_`` (``result.copy_``).
    """
    source: Layout = call.args[0]
    result: Layout = call.result
    if source.size != result.size or call.kwargs.get("beta", 1) == 0:
        return 0
    return _transposing_copy(source, result)


@scratch("aten::copy_", "aten::clone", target=Target.CPU)
def copy(call: Call) -> int:
    """A contiguous copy of a transposed matrix goes through a block.

    Inputs: ``copy_``: self, src, both [N, M]; ``clone``: self [N, M].
    Source: aten/src/ATen/native/Copy.cpp, ``copy_same_type_transpose_``.
    """
    source: Layout = call.args[-1] if isinstance(call.args[-1], Layout) else call.args[0]
    return _transposing_copy(source, call.result)


def _transposing_copy(source: Layout, result: Layout) -> int:
    """The block of ``copy_same_type_transpose_``, 0 if another way is taken."""
    if (
        len(source.size) != 2
        or source.size != result.size
        or source.dtype is not result.dtype
        or source.stride != (1, source.size[0])
        or result.stride != (result.size[1], 1)
        or source.numel < _TRANSPOSE_BLOCK**2
    ):
        return 0
    side = _TRANSPOSE_BLOCK_OF_BYTES if source.dtype is torch.uint8 else _TRANSPOSE_BLOCK
    return int(side * side * source.dtype.itemsize)


@scratch("aten::where", "aten::masked_fill", "aten::masked_fill_", target=Target.CPU)
def chosen_by_mask(call: Call) -> int:
    """The mask is read as it is; the values have one dtype already.

    Source: aten/src/ATen/native/TensorAdvancedIndexing.cpp and TensorCompare.cpp.
    """
    return 0


def pointwise(call: Call) -> int:
    """An elementwise kernel converts inputs of another dtype in whole copies.

    On CUDA the same kernels convert while they read.
    Inputs: any number of tensors that broadcast.
    Source: aten/src/ATen/TensorIterator.cpp, ``TensorIteratorBase::compute_types``: "if
    common_device == kCPU", temporaries for inputs, and for an output of another dtype.
    """
    inputs = list(_layouts_in(call.args))
    dtypes = {i.dtype for i in inputs}
    if len(dtypes) < 2:
        return 0
    common = _common_dtype(inputs)
    converted = sum(i.numel for i in inputs if i.dtype is not common)
    result = call.result
    if isinstance(result, Layout) and result.dtype not in (common, torch.bool):
        converted += result.numel
    return converted * common.itemsize


def _common_dtype(inputs: list[Layout]) -> torch.dtype:
    """The dtype of the computation; tensors without dimensions yield to others."""
    ranked = [i.dtype for i in inputs if i.size] or [i.dtype for i in inputs]
    common = ranked[0]
    for dtype in ranked[1:]:
        common = torch.promote_types(common, dtype)
    return common


def _layouts_in(value: Any) -> Iterator[Layout]:
    for item in value:
        if isinstance(item, Layout):
            yield item
        elif isinstance(item, list | tuple):
            yield from _layouts_in(item)


@scratch("aten::_chunk_cat", target=Target.CPU)
def chunk_cat(call: Call) -> tuple[int, ...]:
    """Padded copies of the tensors whose size is no multiple of the chunks.

    Inputs: tensors, dim, num_chunks. Not covered: copies by which ``cat`` changes the dtype.
    Source: aten/src/ATen/native/TensorShape.cpp, ``_pad_chunk`` (torch 2.13).
    """
    return padded(call.args[0], call.args[1], call.args[2])
