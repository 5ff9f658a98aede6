"""Floating-point operations of a step, by the formulas of ``torch.utils.flop_counter``.

Matrix products, convolutions and attention count, forward and backward; all other operators
count nothing there, and so here. The CPU's own flash attention has no formula in torch's
registry; it takes that of the others (the shapes are the same).
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch._ops import OpOverload

from graphmem.trace import shapes
from graphmem.trace.formulas import Formula, formulas
from graphmem.trace.operator import Dispatched

_aten: Any = torch.ops.aten
_LIKE = {
    _aten._scaled_dot_product_flash_attention_for_cpu: _aten._scaled_dot_product_flash_attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        _aten._scaled_dot_product_flash_attention_backward
    ),
}
# Of sequences of several lengths packed into one: the formulas read the lengths' values.
_READ_VALUES = frozenset(
    {
        *(_aten._flash_attention_forward, _aten._flash_attention_backward),
        *(_aten._efficient_attention_forward, _aten._efficient_attention_backward),
    }
)


def _formula_of(func: OpOverload) -> Formula | None:
    packet = func._overloadpacket
    if packet in _READ_VALUES:
        return None
    return formulas().get(_LIKE.get(packet, packet))


def is_counted(name: str) -> bool:
    """Whether the operators of a name such as ``aten.mm`` compute what is counted."""
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return _LIKE.get(found, found) in formulas()


class Flops:
    """What the operators of each step compute."""

    def __init__(self) -> None:
        self._all: Counter[int] = Counter()
        self._again: Counter[int] = Counter()
        self._formulas: dict[OpOverload, Formula | None] = {}
        self._found: dict[Any, int] = {}

    def count(self, step: int, call: Dispatched, result: Any, *, again: bool) -> None:
        """Add an operator; ``again`` says that a checkpoint's recomputation runs it."""
        func = call.func
        if func not in self._formulas:
            self._formulas[func] = _formula_of(func)
        formula = self._formulas[func]
        if formula is None:
            return
        key = (func, shapes.key_of(call.arguments))
        if key not in self._found:
            self._found[key] = int(formula(*call.args, **call.kwargs, out_val=result))
        found = self._found[key]
        self._all[step] += found
        if again:
            self._again[step] += found

    def of(self, step: int) -> tuple[int, int]:
        """A step's operations, and those of them that are recomputation."""
        return self._all[step], self._again[step]
