"""The autograd engine's in-place sums.

Where two branches meet in backward, the engine adds their gradients. For real it adds
into the gradient that arrived first if nobody else holds it; while a dispatch mode is
active it always adds out of place, because it can't trust what a mode does. The recorder
turns these sums back into what they are for real.

Source: torch/csrc/autograd/input_buffer.cpp, ``accumulate`` and
``can_accumulate_inplace`` (torch 2.13): in place if grad mode is off, the first gradient
is dense and non-overlapping, and the engine holds the last reference to the tensor and to
its storage.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._prims_common import is_non_overlapping_and_dense_or_false

from graphmem.trace.ledger import Entry

ADD = torch.ops.aten.add.Tensor
ADD_IN_PLACE = torch.ops.aten.add_.Tensor


class GradientSums:
    """Tells the engine's sums from a node's own additions.

    A sum of the engine adds a gradient that another node wrote (or the same node twice,
    for two of its inputs) to one that the current node wrote, holding the last reference
    to the first. How many references "the last" is, seen from a dispatch mode, is
    measured once by ``calibrate``.
    """

    def __init__(self) -> None:
        self._sole: tuple[int, int] | None = None

    def calibrate(self) -> None:
        """Run a tiny backward whose one sum holds the last reference to its operand."""
        self._sole = None
        with torch.enable_grad():
            leaf = torch.zeros(1, requires_grad=True)
            first = leaf.sin()
            (first * 2 + first.cos()).backward()

    def watched(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator of ``calibrate`` and remember the sum's reference counts."""
        if func is ADD and self._sole is None and torch._C._current_graph_task_id() != -1:
            self._sole = _references(args[0])
        return func(*args, **kwargs)

    def is_in_place(
        self,
        func: OpOverload,
        args: tuple[Any, ...],
        node: torch.autograd.graph.Node | None,
        inputs: list[Entry],
    ) -> bool:
        """Whether the engine would run this addition in place."""
        if func is not ADD or node is None or torch.is_grad_enabled() or len(inputs) != 2:
            return False
        first, second = args[0], args[1]
        if first.layout is not torch.strided or second.layout is not torch.strided:
            return False
        return (
            _between_nodes(node, inputs)
            and _references(first) == self._sole
            and is_non_overlapping_and_dense_or_false(first)
        )


def _between_nodes(node: torch.autograd.graph.Node, inputs: list[Entry]) -> bool:
    number = node._sequence_nr()
    first, second = inputs
    if first.node != number:
        return True
    edges = [edge for edge in node.next_functions if edge[0] is not None]
    return len(set(edges)) < len(edges)


def _references(tensor: Tensor) -> tuple[int, int]:
    storage = tensor.untyped_storage()
    return tensor._use_count(), torch._C._storage_Use_Count(storage._cdata)  # type: ignore[attr-defined]
