"""Values that are taken for granted where scores and activations have none.

*Choices.* The largest of some unknown scores (``topk``, ``argmax``, ``max`` over a dimension)
may be any. Mixtures of experts send their tokens where a router's largest scores are, and
are trained so that all experts get as many: the choices go around, which is balanced
exactly; or all are chosen once, so that each is trained, and then always the same, the worst
that may be. What follows from them (one-hot
masks, counts, sorted orders, who is empty) is then computed as from any known value,
however it is written. They start in the middle of what is chosen from, because ends of
vocabularies are where special tokens are, which end a generation.

*Finite numbers.* Whether an unknown number is nan or infinite has an answer: it is not.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from graphmem.options import Routing
from graphmem.schedule import Unknown
from graphmem.targets import Layout
from graphmem.trace import known

_aten = torch.ops.aten
_CHOOSERS: dict[OpOverload, int | None] = {
    _aten.topk.default: 1,
    _aten.argmax.default: None,
    _aten.argmin.default: None,
    _aten.max.dim: 1,
    _aten.min.dim: 1,
}
"""Operators that choose by value -> which of their results is the choice, if they have two."""

_ASSUMED = {
    Routing.BALANCED: "each is chosen equally often",
    Routing.WORST: "each once, then always the same",
}


def of_choice(line: str, routing: Routing) -> Unknown:
    """What a report says of an assumed choice."""
    return Unknown("which of unknown scores are the largest", line, _ASSUMED[routing])


def of_finite(line: str) -> Unknown:
    """What a report says of a test for finite numbers."""
    return Unknown("whether numbers are finite", line, "they are")


def chosen(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], layout: Any, routing: Routing
) -> tuple[int | None, Tensor] | None:
    """The choice that an operator makes among unknown scores, as ``(which result, values)``.

    None if it makes none, or one that is not worth computing.
    """
    if func not in _CHOOSERS:
        return None
    position = _CHOOSERS[func]
    scores: Tensor = args[0]
    result: Layout = layout if position is None else layout[position]
    if not scores.is_floating_point() or result.numel > known.MOST_ELEMENTS:
        return None
    is_topk = func is _aten.topk.default
    dim = _dimension(args, kwargs, 2 if is_topk else 1, -1 if is_topk else None)
    return position, _choices(scores, result, dim, routing, each=args[1] if is_topk else 1)


def _dimension(args: Any, kwargs: dict[str, Any], at: int, default: int | None) -> int | None:
    found: int | None = args[at] if len(args) > at else kwargs.get("dim", default)
    return found


def _choices(
    scores: Tensor, result: Layout, dim: int | None, routing: Routing, *, each: int
) -> Tensor:
    """Indices below the size of ``dim``, shaped as the result; of one row all differ."""
    options = scores.numel() if dim is None or not scores.dim() else scores.shape[dim]
    rows = math.prod(result.size) // max(each, 1)
    count = torch.arange(rows * each)
    if routing is Routing.WORST:
        count = torch.where(count < options, count, count % max(each, 1))
    values = (count + options // 2) % max(options, 1)
    if dim is None or each == 1:
        return values.view(result.size)
    shape = list(result.size)
    del shape[dim]
    return values.view(*shape, each).movedim(-1, dim).contiguous()


def finite(func: OpOverload, args: tuple[Any, ...]) -> bool | None:
    """What a test for nan or infinity gives for finite numbers; None if it is no such test."""
    if func in (_aten.isnan.default, _aten.isinf.default):
        return False
    if func in (_aten.isposinf.default, _aten.isneginf.default):
        return False
    is_equality = func in (_aten.eq.Tensor, _aten.eq.Scalar)
    if not is_equality and func not in (_aten.ne.Tensor, _aten.ne.Scalar):
        return None
    first, second = args
    if first is second:  # x == x, unless x is nan
        return is_equality
    is_infinite = isinstance(second, float) and math.isinf(second)
    return not is_equality if is_infinite else None
