"""Floating-point operations of a step, by the formulas of ``torch.utils.flop_counter``.

Matrix products, convolutions and attention count, forward and backward; all other operators
count nothing there, and so here. The CPU's own flash attention has no formula in torch's
registry; it takes that of the others (the shapes are the same).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import flop_counter

from graphmem.trace.operator import Dispatched

_aten: Any = torch.ops.aten
_OWN: dict[Any, Callable[..., Any]] = {
    _aten._scaled_dot_product_flash_attention_for_cpu: flop_counter.sdpa_flop,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: flop_counter.sdpa_backward_flop,
}
# Of sequences of several lengths packed into one: the formulas read the lengths' values.
_READ_VALUES = frozenset(
    {
        *(_aten._flash_attention_forward, _aten._flash_attention_backward),
        *(_aten._efficient_attention_forward, _aten._efficient_attention_backward),
    }
)


class Flops:
    """What the operators of each step compute."""

    def __init__(self) -> None:
        self._all: Counter[int] = Counter()
        self._again: Counter[int] = Counter()

    def count(self, step: int, call: Dispatched, result: Any, *, again: bool) -> None:
        """Add an operator; ``again`` says that a checkpoint's recomputation runs it."""
        packet = call.func._overloadpacket
        formula = _OWN.get(packet) or flop_counter.flop_registry.get(packet)
        if formula is None or packet in _READ_VALUES:
            return
        found = int(formula(*call.args, **call.kwargs, out_val=result))
        self._all[step] += found
        if again:
            self._again[step] += found

    def of(self, step: int) -> tuple[int, int]:
        """A step's operations, and those of them that are recomputation."""
        return self._all[step], self._again[step]
