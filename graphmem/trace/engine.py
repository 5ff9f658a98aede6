"""What C++ code runs in place for real, and out of place under a dispatch mode.

A dispatch mode could do anything with an operator, so torch avoids in-place operations on
its own intermediate results while one is active. The recorder turns these operations back
into what they are for real. There are three kinds:

1. *The engine's sums.* Where two branches meet in backward, the engine adds the later
   gradient into the earlier one if grad mode is off, the earlier one is dense and
   non-overlapping, and the engine holds the last reference to it and to its storage.
   Source: torch/csrc/autograd/input_buffer.cpp, ``accumulate`` and
   ``can_accumulate_inplace`` (torch 2.13).
2. *The bias of a linear layer* whose input is not contiguous (a transposed one, an LSTM's
   with ``batch_first``): ``output.add_(bias)``, unless ``isTensorSubclassLike(bias)``.
   Source: aten/src/ATen/native/Linear.cpp, ``linear`` (torch 2.13).
3. *Gradients scattered into zeros* that the same node of autograd has made: of ``gather``,
   indexing, ``max`` over a dimension and the like, unless ``areAnyTensorSubclassLike``.
   Source: torch/csrc/autograd/FunctionsManual.cpp, ``index_backward``; aten/src/ATen/native/
   ReduceOps.cpp, ``value_selecting_reduction_backward_symint``, and
   TensorAdvancedIndexing.cpp, ``gather_backward`` and its neighbours (torch 2.13). Seen in
   the snapshots: one allocation, by ``new_zeros``.

In the first two, only C++ holds the tensor that is added to. What that looks like from a dispatch
mode (the numbers of references to the tensor, its storage and its Python object) is
measured once by running the two, see ``calibrate``.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._ops import OpOverload
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch.autograd.function import BackwardCFunction

from graphmem.trace.ledger import Entry

ADD = torch.ops.aten.add.Tensor
ADD_IN_PLACE = torch.ops.aten.add_.Tensor
_aten = torch.ops.aten
_ON_ZEROS: dict[OpOverload, OpOverload] = {
    _aten.scatter.src: _aten.scatter_.src,
    _aten.scatter_add.default: _aten.scatter_add_.default,
    _aten.index_add.default: _aten.index_add_.default,
    _aten.index_put.default: _aten.index_put_.default,
    _aten.masked_scatter.default: _aten.masked_scatter_.default,
    _aten.put.default: _aten.put_.default,
}
_ZEROS = ("aten.new_zeros", "aten.zeros", "aten.zeros_like")
_MATMUL_RESULTS = ("aten.mm", "aten.bmm", "aten.mv", "aten.dot")

References = tuple[int, int, int]


class Additions:
    """Tells which out-of-place additions are in place for real."""

    def __init__(self) -> None:
        self._engine: set[References] = set()
        self._linear: set[References] = set()

    def calibrate(self) -> None:
        """Run a backward with one sum, and linear layers that add their bias apart."""
        with torch.enable_grad():
            leaf = torch.zeros(1, requires_grad=True)
            first = leaf.sin()
            (first * 2 + first.cos()).backward()
            _add_bias_apart(requires_grad=True)
        _add_bias_apart(requires_grad=False)
        with torch.inference_mode():
            _add_bias_apart(requires_grad=False)

    def watch(self, func: OpOverload, args: tuple[Any, ...]) -> None:
        """Learn from an operator that ``calibrate`` runs."""
        if func is ADD and isinstance(args[1], Tensor):
            in_backward = torch._C._current_graph_task_id() != -1
            if in_backward:
                self._engine.add(_references(args[0]))
            elif args[0].dim() == 3:
                self._linear.add(_references(args[0]))

    def is_engine_sum(
        self,
        args: tuple[Any, ...],
        node: torch.autograd.graph.Node | None,
        inputs: list[Entry],
    ) -> bool:
        """Whether the engine would run ``aten.add(*args)`` in place."""
        if node is None or torch.is_grad_enabled() or len(inputs) != 2:
            return False
        return (
            _references(args[0]) in self._engine
            and args[0].layout is args[1].layout is torch.strided
            and _between_nodes(node, inputs)
            and is_non_overlapping_and_dense_or_false(args[0])
        )

    def is_bias(self, args: tuple[Any, ...], inputs: list[Entry]) -> bool:
        """Whether ``aten.add(*args)`` adds a linear layer's bias to its own result."""
        return (
            len(inputs) == 2
            and inputs[0].op in _MATMUL_RESULTS
            and args[1].dim() == 1
            and _references(args[0]) in self._linear
        )


def on_own_zeros(
    func: OpOverload, node: torch.autograd.graph.Node | None, inputs: list[Entry]
) -> OpOverload | None:
    """What a C++ node of autograd runs in place of ``func`` on zeros that it has made.

    None where the operator stays what it is.
    """
    found = _ON_ZEROS.get(func)
    if found is None or node is None or isinstance(node, BackwardCFunction):
        return None
    zeros = inputs[0]
    made_here = zeros.node == node._sequence_nr() and zeros.op in _ZEROS
    return found if made_here else None


def _add_bias_apart(requires_grad: bool) -> None:
    transposed = torch.zeros(2, 2, 2).transpose(0, 1)
    weight = torch.zeros(2, 2, requires_grad=requires_grad)
    F.linear(transposed, weight, torch.zeros(2, requires_grad=requires_grad))


def _between_nodes(node: torch.autograd.graph.Node, inputs: list[Entry]) -> bool:
    """Whether an addition joins the results of two nodes, and is not a node's own.

    The same node may deliver both, for two of its inputs that are one tensor.
    """
    if inputs[0].node != node._sequence_nr():
        return True
    edges = [edge for edge in node.next_functions if edge[0] is not None]
    return len(set(edges)) < len(edges)


def _references(tensor: Tensor) -> References:
    storage = tensor.untyped_storage()
    counted = torch._C._storage_Use_Count(storage._cdata)
    used: int = tensor._use_count()  # type: ignore[attr-defined]
    return used, counted, sys.getrefcount(tensor)
