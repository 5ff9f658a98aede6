"""Indexing: sorted indices where values are accumulated, positions of masks.

Source: aten/src/ATen/native/cuda/Indexing.cu (``index_put_with_sort_kernel``,
``computeLinearIndex``, ``masked_select_out_cuda_impl``), Nonzero.cu (``nonzero_cuda_out_impl``),
IndexKernel.cpp and IndexKernel.cu (``masked_scatter__cuda``), and
aten/src/ATen/native/TensorAdvancedIndexing.cpp (``_index_put_impl_``). Without accumulation,
and in ``index_add_``, ``gather``, ``scatter_add_`` and ``index_select``, nothing is sorted,
unless deterministic algorithms are asked for.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from graphmem.options import Target
from graphmem.schedule import Scratch
from graphmem.targets.cuda import cub
from graphmem.targets.cuda.calls import argument, contiguous, copy_bytes, nbytes
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call, scratch

_INDEX = 8  # an int64
_COUNT = 4  # how many are not zero, an int32
_MASKS = (torch.bool, torch.uint8)


@scratch(
    "aten::index_put_",
    "aten::index_put",
    "aten::_index_put_impl_",
    "aten::_unsafe_index_put",
    target=Target.CUDA,
)
def index_put(call: Call) -> Scratch:
    """With ``accumulate`` (a gradient of indexing): linear indices, and their sorted copies.

    Inputs: self, indices (a list with None for whole dimensions), values, accumulate.
    """
    masks = _mask_positions(call)
    accumulate = bool(argument(call, 3, "accumulate", False))
    if not accumulate and not torch.are_deterministic_algorithms_enabled():
        return masks
    table: Layout = call.args[0]
    indices = _expanded(call.args[1])
    each, count = _indexed(indices), len(indices)
    lines = math.prod(each)
    one = lines * _INDEX
    table_copy = 0 if contiguous(table) else nbytes(table)
    held = (*(masks[-1] if masks else ()), table_copy)
    linear = ((*held, one, one), *(((*held, one, one, one),) if count > 1 else ()))
    values = _copied_values(table, indices, argument(call, 2, "values"), lines)
    moved = nbytes(table) if _scattered(call.args[1]) else 0
    bits = _bits(table, _slice_size(table, call.args[1]))
    temporary = cub.radix_sort(lines, _INDEX, _INDEX, bits, call.gpu) if lines else 0
    return (*masks, *linear, (*held, one, values, moved, one, one, one, temporary))


@scratch("aten::index", "aten::_unsafe_index", target=Target.CUDA)
def index(call: Call) -> Scratch:
    """A mask becomes positions first, int32 indices int64. Inputs: self, indices."""
    converted = [
        nbytes(i, torch.int64)
        for i in call.args[1]
        if isinstance(i, Layout) and i.dtype is torch.int32
    ]
    return (*_mask_positions(call), tuple(converted))


@scratch("aten::masked_select", target=Target.CUDA)
def masked_select(call: Call) -> Scratch:
    """The positions of the mask, broadcast with self. Inputs: self, mask."""
    source, mask = call.args[0], call.args[1]
    shape = torch.broadcast_shapes(source.size, mask.size)
    return _positions(call, shape, call.result.numel, 0)


@scratch("aten::nonzero", target=Target.CUDA)
def nonzero(call: Call) -> Scratch:
    """A count, and cub's storage for counting and for selecting. Inputs: self."""
    source: Layout = call.args[0]
    return _found(call, source.numel, source.dtype.itemsize, copy_bytes(source))


@scratch("aten::masked_scatter_", "aten::masked_scatter", target=Target.CUDA)
def masked_scatter(call: Call) -> Scratch:
    """How many of the mask's elements come before each: an int64 for each element of self.

    Inputs: self, mask (broadcast to self in a copy), source.
    """
    target, mask, source = call.args[0], call.args[1], call.args[2]
    whole = mask.size == target.size and contiguous(mask)
    before = target.numel * _INDEX
    copied = 0 if whole else target.numel
    return ((before, copied, cub.scan(target.numel, _INDEX)), (before, copied, copy_bytes(source)))


@scratch("aten::scatter_reduce", "aten::scatter_reduce_", target=Target.CUDA)
def scatter_reduce(call: Call) -> Scratch:
    """A mean counts what arrives where, as ones that are scattered; others need nothing.

    Inputs: self, dim, index, src, reduce.
    """
    target, source = call.args[0], call.args[3]
    if call.args[4] != "mean":
        return ()
    return ((nbytes(source), nbytes(target), target.numel),)


# -- masks


def _mask_positions(call: Call) -> Scratch:
    """What ``expandTensors`` makes of masks: their positions, which stay."""
    masks = [i for i in call.args[1] if isinstance(i, Layout) and i.dtype in _MASKS]
    stages: Scratch = ()
    for mask in masks:
        stages += _positions(call, mask.size, _selected(call, mask), copy_bytes(mask))
    return stages


def _positions(call: Call, shape: Any, count: int, copied: int) -> Scratch:
    """The stages of ``nonzero`` of a mask, and its result."""
    positions = count * len(shape) * _INDEX
    first, second = _found(call, math.prod(shape), 1, copied)
    return first, (*second, positions), (positions,)


def _found(call: Call, n: int, itemsize: int, copied: int) -> Scratch:
    return (
        (copied, _COUNT, cub.reduce(n, itemsize, call.gpu)),
        (copied, _COUNT, cub.select_flagged(n, call.gpu)),
    )


def _selected(call: Call, mask: Layout) -> int:
    """How many elements of a mask are set: what the result or the values tell, else all."""
    told = argument(call, 2, "values", call.result)
    others = [i for i in call.args[1] if isinstance(i, Layout) and i is not mask]
    if isinstance(told, Layout) and told.size and not others:
        return min(told.size[_position(call, mask)], mask.numel)
    return mask.numel


def _position(call: Call, mask: Layout) -> int:
    """The dimension of the result that a mask's positions run along."""
    return next(place for place, i in enumerate(call.args[1]) if i is mask)


# -- accumulated values


def _expanded(given: list[Any]) -> dict[int, tuple[int, ...]]:
    """The shape of the index of each indexed dimension; a mask's is one of each of its own."""
    shapes: dict[int, tuple[int, ...]] = {}
    dim = 0
    for index in given:
        if index is None:
            dim += 1
        elif index.dtype in _MASKS:
            for _ in index.size:
                shapes[dim] = (index.numel,)
                dim += 1
        else:
            shapes[dim] = index.size
            dim += 1
    return shapes


def _indexed(indices: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(torch.broadcast_shapes(*indices.values()))


def _slice_size(table: Layout, given: list[Any]) -> int:
    """The elements below each index: of the dimensions after the last that is indexed."""
    dims = _expanded(given)
    if _scattered(given):
        return math.prod(size for dim, size in enumerate(table.size) if dim not in dims)
    return math.prod(table.size[max(dims) + 1 :])


def _scattered(given: list[Any]) -> bool:
    """Whether whole dimensions lie between indexed ones: they are moved to the end."""
    places = [place for place, index in enumerate(given) if index is not None]
    return places != list(range(places[0], places[-1] + 1))


def _copied_values(
    table: Layout, indices: dict[int, tuple[int, ...]], values: Layout, lines: int
) -> int:
    """Values are copied unless they have the indexed shape already, row by row."""
    others = math.prod(size for dim, size in enumerate(table.size) if dim not in indices)
    whole = values.numel == lines * others and contiguous(values)
    return 0 if whole else lines * others * values.dtype.itemsize


def _bits(table: Layout, slice_size: int) -> int:
    """``get_num_bits`` of the largest linear index."""
    largest = max(table.numel - 1, 0) // max(slice_size, 1)
    return max(largest.bit_length(), 1)
