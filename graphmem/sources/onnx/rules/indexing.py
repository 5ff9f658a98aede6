"""Operators that read and write parts of tensors at indices."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphmem.sources.onnx import bounds
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.texts import moves_elements
from graphmem.sources.onnx.values import integers


@rule("Slice")
@moves_elements
def slice_by_attributes(call: Call, x: Tensor) -> Tensor:
    """A view of the ranges that the attributes ``starts``, ``ends`` and ``axes`` give."""
    starts, ends = call.integers("starts"), call.integers("ends")
    axes = call.integers("axes", tuple(range(len(starts))))
    for axis, start, end in zip(axes, starts, ends, strict=True):
        x = _slice(x, axis, start, end, 1)
    return x


@rule("Slice", since=10)
@moves_elements
def slice_(
    call: Call,
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    """A view of ranges; one with a negative step is a flipped copy."""
    along = list(range(starts.numel())) if axes is None else integers(axes)
    ranges = bounds.or_bound(
        lambda: list(zip(integers(starts), integers(ends), strict=True)),
        lambda: [(0, x.shape[axis]) for axis in along],
        call,
        what="a slice whose ends depend on data",
        assumed="all of the axis",
    )
    by = [1] * len(along) if steps is None else integers(steps)
    for axis, (start, end), step in zip(along, ranges, by, strict=True):
        x = _slice(x, axis, start, end, step)
    return x


def _slice(x: Tensor, axis: int, start: int, end: int, step: int) -> Tensor:
    places = range(*slice(start, end, step).indices(x.shape[axis]))
    axis = axis % x.dim()
    before = (slice(None),) * axis
    if step > 0:
        return x[(*before, slice(places.start, max(places.stop, places.start), step))]
    low, high = (places[-1], places[0] + 1) if places else (0, 0)
    return x[(*before, slice(low, high, -step))].flip(axis)


def from_start(indices: Tensor, size: int) -> Tensor:
    """Indices of which negative ones, which count from the end, are made positive.

    Indices that an analysis does not know stay as they are: as in a PyTorch model, which has
    no negative ones.
    """
    indices = indices.long()
    if not bounds.is_known(indices):
        return indices
    return torch.where(indices < 0, indices + size, indices)


@rule("Gather")
@moves_elements
def gather(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    """Parts of x at ``indices`` along ``axis``: an embedding where x is the weight of one."""
    axis = call.integer("axis", 0) % x.dim()
    if axis == 0 and _is_embedding(x) and not _has_negative(indices):
        return F.embedding(indices, x)
    if indices.dim() == 0 and bounds.is_known(indices):
        return x.select(axis, integers(indices)[0])
    where: list[slice | Tensor] = [slice(None)] * axis
    return x[(*where, indices)]


def _is_embedding(x: Tensor) -> bool:
    return isinstance(x, nn.Parameter) and x.dim() == 2


def _has_negative(indices: Tensor) -> bool:
    """Whether an index is negative; where that is not known, none is."""
    return bounds.is_known(indices) and bool((indices < 0).any())


@rule("GatherElements", since=11)
@moves_elements
def gather_elements(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    """``x[i][indices[i, j]]`` along ``axis``."""
    axis = call.integer("axis", 0)
    return torch.gather(x, axis, from_start(indices, x.shape[axis]))


@rule("GatherND", since=11)
@moves_elements
def gather_nd(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    """Slices of x [b..., d...] at indices [b..., i..., k], of which the last is a position."""
    batch = call.integer("batch_dims", 0)
    grids = _grids(tuple(x.shape[:batch]), indices.dim() - 1, indices.device)
    return x[(*grids, *indices.long().unbind(-1))]


def _grids(sizes: tuple[int, ...], rank: int, device: torch.device) -> list[Tensor]:
    """Positions along the first dimensions, that broadcast to ``rank`` dimensions."""
    made = []
    for axis, size in enumerate(sizes):
        shape = [1] * rank
        shape[axis] = size
        made.append(torch.arange(size, device=device).reshape(shape))
    return made


_REDUCE = {"mul": "prod", "max": "amax", "min": "amin"}


@rule("Scatter", since=9)
@rule("ScatterElements", since=11)
@moves_elements
def scatter_elements(call: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """A copy of x with ``updates`` at ``indices`` along ``axis``, combined by ``reduction``."""
    axis = call.integer("axis", 0)
    index = from_start(indices, x.shape[axis])
    return _scatter(x, axis, index, updates, call.text("reduction", "none"))


def _scatter(x: Tensor, axis: int, index: Tensor, updates: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return x.scatter(axis, index, updates)
    if reduction == "add":
        return x.scatter_add(axis, index, updates)
    return x.scatter_reduce(axis, index, updates, _REDUCE[reduction])


@rule("ScatterND", since=11)
@moves_elements
def scatter_nd(call: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """A copy of x with slices at indices [i..., k] replaced by or combined with ``updates``."""
    reduction = call.text("reduction", "none")
    places = indices.long().unbind(-1)
    if not places:
        return updates.reshape(x.shape) if reduction == "none" else x + updates
    if reduction in ("none", "add"):
        return x.index_put(places, updates, accumulate=reduction == "add")
    depth = len(places)
    flat = torch.zeros_like(places[0])
    for size, place in zip(x.shape[:depth], places, strict=True):
        flat = flat * size + from_start(place, size)
    rows = x.reshape(math.prod(x.shape[:depth]), -1)
    index = flat.reshape(-1, 1).expand(-1, rows.shape[1])
    made = _scatter(rows, 0, index, updates.reshape(-1, rows.shape[1]), reduction)
    return made.reshape(x.shape)


@rule("TensorScatter", since=24)
def tensor_scatter(
    call: Call, cache: Tensor, update: Tensor, write_indices: Tensor | None = None
) -> Tensor:
    """A copy of a cache [B, ..., S, ...] with an update [B, ..., s, ...] from positions [B] on."""
    axis = call.integer("axis", -2) % cache.dim()
    positions = torch.arange(update.shape[axis], device=cache.device).unsqueeze(0)
    if write_indices is not None:
        positions = positions + write_indices.long().unsqueeze(1)  # [B, s]
    if call.text("mode", "linear") == "circular":
        positions = positions.remainder(cache.shape[axis])
    shape = [1] * cache.dim()
    shape[0], shape[axis] = positions.shape
    index = positions.reshape(shape).expand(update.shape)
    return cache.scatter(axis, index, update)


@rule("Where", since=9)
@moves_elements
def where(call: Call, condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Elements of x where the condition holds, else of y; shapes broadcast."""
    return torch.where(condition, x, y)


@rule("ReverseSequence", since=10)
@moves_elements
def reverse_sequence(call: Call, x: Tensor, lengths: Tensor) -> Tensor:
    """A copy of which each sequence's first ``lengths`` steps are in reverse order."""
    batch_axis, time_axis = call.integer("batch_axis", 1), call.integer("time_axis", 0)
    sequences = x.movedim((batch_axis, time_axis), (0, 1))
    steps = torch.arange(sequences.shape[1], device=x.device).unsqueeze(0)
    ends = lengths.long().unsqueeze(1)
    places = torch.where(steps < ends, ends - 1 - steps, steps)  # [B, T]
    rows = torch.arange(sequences.shape[0], device=x.device).unsqueeze(1)
    return sequences[rows, places].movedim((0, 1), (batch_axis, time_axis))
