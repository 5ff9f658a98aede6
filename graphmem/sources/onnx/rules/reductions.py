"""Reductions over axes, indices of extremes, and running sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from graphmem.sources.onnx import unsigned
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.values import integer, integers

Reduction = Callable[[Tensor, list[int], bool], Tensor]
"""Of a tensor, over dimensions (perhaps none), which are kept or not."""


def _reduce(op: str, function: Reduction, axes_are_input_since: int = 18) -> None:
    @rule(op)
    def by_attribute(call: Call, x: Tensor) -> Tensor:
        """Over the dimensions of the attribute ``axes``, or over all."""
        axes = call.integers("axes", ()) or range(x.ndim)
        return function(x, [a % x.ndim for a in axes], _kept(call))

    @rule(op, since=axes_are_input_since)
    def by_input(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
        """Over the dimensions of the input ``axes``, or over all, or with a flag over none."""
        chosen = [] if axes is None else [a % x.ndim for a in integers(axes)]
        if not chosen and not call.integer("noop_with_empty_axes", 0):
            chosen = list(range(x.ndim))
        return function(x, chosen, _kept(call))


def _kept(call: Call) -> bool:
    return bool(call.integer("keepdims", 1))


def _sum(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    if not dims:
        return x
    return unsigned.wrapping(lambda t: torch.sum(t, dims, keep, dtype=t.dtype), x)


def _mean(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    if not dims:
        return x
    if x.dtype.is_floating_point:
        return torch.mean(x, dims, keep)
    count = math.prod(x.shape[d] for d in dims)
    return unsigned.divide(_sum(x, dims, keep), torch.tensor(count, dtype=x.dtype))


def _product(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    def product(t: Tensor) -> Tensor:
        for dim in sorted(dims, reverse=True):
            t = torch.prod(t, dim, keep, dtype=t.dtype)
        return t

    return unsigned.wrapping(product, x)


def _extreme(x: Tensor, dims: list[int], keep: bool, largest: bool) -> Tensor:
    """The largest or smallest; of no elements the number that every other one beats."""
    if not dims:
        return x
    if math.prod(x.shape[d] for d in dims) == 0:
        shape = torch.sum(x.to(torch.float32), dims, keep).shape
        return torch.full(shape, _beaten(x.dtype, largest), dtype=x.dtype, device=x.device)
    function = torch.amax if largest else torch.amin
    return unsigned.selecting(lambda t: function(t, dims, keep), x)


def _beaten(dtype: torch.dtype, largest: bool) -> float:
    if dtype is torch.bool:
        return not largest
    if dtype.is_floating_point:
        return -math.inf if largest else math.inf
    return torch.iinfo(dtype).min if largest else torch.iinfo(dtype).max


def _norm(x: Tensor, dims: list[int], keep: bool, order: int) -> Tensor:
    if not x.dtype.is_floating_point:
        return _norm(x.double(), dims, keep, order).to(x.dtype)
    if not dims:
        return torch.abs(x)
    result: Tensor = torch.linalg.vector_norm(x, order, dims, keep)
    return result


def _log_sum(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return torch.log(_sum(x, dims, keep)).to(x.dtype)


def _log_sum_exp(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return torch.logsumexp(x, dims, keep).to(x.dtype) if dims else x


def _sum_of_squares(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    return _sum(unsigned.wrapping(torch.square, x), dims, keep)


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceL1": partial(_norm, order=1),
    "ReduceL2": partial(_norm, order=2),
    "ReduceLogSum": _log_sum,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceMax": partial(_extreme, largest=True),
    "ReduceMean": _mean,
    "ReduceMin": partial(_extreme, largest=False),
    "ReduceProd": _product,
    "ReduceSumSquare": _sum_of_squares,
}
for _op, _function in _REDUCTIONS.items():
    _reduce(_op, _function)
_reduce("ReduceSum", _sum, axes_are_input_since=13)


def _index(op: str, function: Callable[[Tensor, int, bool], Tensor]) -> None:
    @rule(op)
    def run(call: Call, x: Tensor) -> Tensor:
        """The index of the extreme along ``axis``: the first one, or (opset 12) the last."""
        axis, keep = call.integer("axis", 0), _kept(call)
        if not call.integer("select_last_index", 0):
            return _indices(x, axis, keep)
        return x.shape[axis] - 1 - _indices(torch.flip(x, [axis]), axis, keep)

    def _indices(x: Tensor, axis: int, keep: bool) -> Tensor:
        result: Tensor = unsigned.ordering(lambda t: function(t, axis, keep), x)
        return result


_index("ArgMax", torch.argmax)
_index("ArgMin", torch.argmin)


def _running(op: str, function: Callable[..., Tensor], start: int, since: int) -> None:
    @rule(op, since=since)
    def run(call: Call, x: Tensor, axis: Tensor) -> Tensor:
        """Along an axis, in either direction, with or without the element itself."""
        return unsigned.wrapping(lambda t: along(call, t, integer(axis)), x)

    def along(call: Call, x: Tensor, axis: int) -> Tensor:
        backwards = call.integer("reverse", 0)
        x = torch.flip(x, [axis]) if backwards else x
        if call.integer("exclusive", 0) and x.shape[axis]:
            first = torch.full_like(x.narrow(axis, 0, 1), start)
            x = torch.cat([first, x.narrow(axis, 0, x.shape[axis] - 1)], axis)
        x = function(x, axis, dtype=x.dtype)
        return torch.flip(x, [axis]) if backwards else x


_running("CumSum", torch.cumsum, start=0, since=11)
_running("CumProd", torch.cumprod, start=1, since=26)
