"""The largest value that an unknown integer may have, where it counts something.

Booleans are at most 1; sums of bounded values are bounded by how many are summed; what only
moves values about keeps their bound. ``int(mask.sum())`` is then at most the mask's size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphmem.trace.ledger import Entry
from graphmem.trace.operator import Dispatched

_SUMS = frozenset({"aten.sum", "aten.sum.dim_IntList", "aten.count_nonzero"})
_SUMS |= {"aten.count_nonzero.dim_IntList"}
_MOVES = frozenset(
    {"aten._to_copy", "aten.clone", "aten.max", "aten.min", "aten.amax", "aten.amin"}
    | {"aten.max.dim", "aten.min.dim", "aten.cat", "aten.stack", "aten.maximum", "aten.minimum"}
    | {"aten.flip", "aten.where.self"}
)
_TAKES = frozenset({"aten.index.Tensor", "aten.index_select", "aten.gather"})
"""They take elements of their first argument, whatever the others say of where."""


def most(call: Dispatched, inputs: list[Entry], result: Tensor) -> int | None:
    """The largest value in an integer result of an operator; None if nothing bounds it."""
    if result.dtype is torch.bool:
        return 1
    if result.dtype.is_floating_point or result.dtype.is_complex or not result.numel():
        return None
    name = call.operator.name
    if name in _SUMS:
        return _summed(name, call.args[0], inputs[0], result)
    if name in _TAKES:
        return int(call.args[0].max()) if inputs[0].known else inputs[0].most
    bounds = [entry.most for entry in inputs if not entry.dtype.startswith(("float", "bfloat"))]
    if name in _MOVES and bounds and None not in bounds:
        return max(bound for bound in bounds if bound is not None)
    return None


def _summed(name: str, source: Any, entry: Entry, result: Tensor) -> int | None:
    each = 1 if name.startswith("aten.count_nonzero") else entry.most
    return None if each is None else each * (source.numel() // result.numel())
