"""Operators that choose elements by their values, so that their sizes depend on data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmem.sources.onnx import bounds
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.texts import decoded, encoded, moves_elements
from graphmem.sources.onnx.values import integer


@rule("NonZero", since=9)
def non_zero(call: Call, x: Tensor) -> Tensor:
    """The indices [rank, n] int64 of elements that are not zero; at most all."""
    found = bounds.or_bound(
        lambda: torch.nonzero(x),
        lambda: torch.empty(x.numel(), x.dim(), dtype=torch.int64, device=x.device),
        call,
        what="how many elements are not zero",
        assumed=f"all {x.numel():,}",
    )
    return found.T


@rule("Compress", since=9)
@moves_elements
def compress(call: Call, x: Tensor, condition: Tensor) -> Tensor:
    """What a condition [n] chooses of x along ``axis``, or of its elements; at most all n."""
    axis = call.get("axis")
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    places = bounds.or_bound(
        lambda: torch.nonzero(condition).squeeze(1),
        lambda: torch.empty(condition.numel(), dtype=torch.int64, device=x.device),
        call,
        what="how many elements a condition chooses",
        assumed=f"all {condition.numel():,}",
    )
    return x.index_select(axis, places)


@rule("TopK")
def top_k_by_attribute(call: Call, x: Tensor) -> tuple[Tensor, Tensor]:
    """The ``k`` largest along ``axis``, and their indices."""
    return _top(call, x, call.integer("k"))


@rule("TopK", since=10)
def top_k(call: Call, x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """The k largest or smallest along ``axis``, and their indices int64."""
    size = x.shape[call.integer("axis", -1)]
    count = bounds.or_bound(
        lambda: integer(k), lambda: size, call, what="k, which depends on data", assumed="all"
    )
    return _top(call, x, count)


def _top(call: Call, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Of equal values the first come first, where the CPU computes with known values.

    ``torch.topk`` leaves their order open (torch.topk's documentation): it is what runs on a
    GPU and in an analysis, where it needs less memory than a stable sort.
    """
    axis, largest = call.integer("axis", -1), bool(call.integer("largest", 1))
    if x.device.type == "cpu" and bounds.is_known(x):
        values, indices = torch.sort(x, dim=axis, descending=largest, stable=True)
        return values.narrow(axis, 0, k), indices.narrow(axis, 0, k)
    made = torch.topk(x, k, axis, largest, bool(call.integer("sorted", 1)))
    return made.values, made.indices


@rule("Unique", since=11)
def unique(call: Call, x: Any) -> Any:
    """The different elements or slices, their first places, x in them, and their counts.

    At most as many as there are.
    """
    if isinstance(x, np.ndarray):
        (codes,), pool = encoded([x])
        first, *others = _unique(call, codes)
        results: tuple[Any, ...] = (decoded(first, pool), *others)
    else:
        results = _unique(call, x)
    return results[: call.outputs] if call.outputs > 1 else results[0]


def _unique(call: Call, x: Tensor) -> tuple[Tensor, ...]:
    axis = call.get("axis")
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    count = x.shape[axis]
    return bounds.or_bound(
        lambda: _exactly(x, axis, bool(call.integer("sorted", 1))),
        lambda: _all_different(x, axis),
        call,
        what="how many elements are different",
        assumed=f"all {count:,}",
    )


def _exactly(x: Tensor, axis: int, in_order: bool) -> tuple[Tensor, ...]:
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True, dim=axis)
    places = torch.arange(x.shape[axis], device=x.device)
    firsts = torch.full_like(counts, x.shape[axis])
    firsts = firsts.scatter_reduce(0, inverse, places, "amin")
    if in_order:
        return values, firsts, inverse, counts
    order = torch.argsort(firsts)
    return (
        values.index_select(axis, order),
        firsts[order],
        torch.argsort(order)[inverse],
        counts[order],
    )


def _all_different(x: Tensor, axis: int) -> tuple[Tensor, ...]:
    numbers = [torch.empty(x.shape[axis], dtype=torch.int64, device=x.device) for _ in range(3)]
    return (torch.empty_like(x), *numbers)
