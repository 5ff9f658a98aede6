"""Answers: what an operator returns in a trace, without its kernel.

1. A view is made by torch's own kernel: it touches no data.
2. Where all inputs are known and the result is small, torch's own kernel computes it, if
   the CPU has one. A small tensor that nothing is written on yet has memory too: what fills
   it may be known.
3. Everything else is hollow, laid out as ``shapes`` says; arguments that are written and
   returned are returned themselves.

What needs values that nobody has is an error that names the line; what no kernel tells
the layout of is assumed and noted, or refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from graphmem.errors import UnsupportedOpError
from graphmem.schedule import Unknown
from graphmem.targets import Layout, ResultRule, layouts
from graphmem.trace import (
    choices,
    collectives,
    known,
    optimizer_values,
    packed,
    quantized,
    shapes,
    sizes,
    sparse,
)
from graphmem.trace.assumptions import Assumptions, value_needed
from graphmem.trace.evidence import Evidence
from graphmem.trace.hollow import hollow_results, hollow_storage, on_storage
from graphmem.trace.knowledge import Given
from graphmem.trace.ledger import Entry, Ledger
from graphmem.trace.operator import Dispatched
from graphmem.trace.place import Place, asked_by_optimizer

_ENTRIES = "how many entries a product of two sparse matrices has"
_SCALAR = torch.ops.aten._local_scalar_dense.default
_STRIDED = torch.strided
_EQUAL = torch.ops.aten.equal.default
_LEFT_ALIGNED = torch.ops.aten._nested_tensor_from_mask_left_aligned.default
_PADDED = Unknown("whether nn.TransformerEncoder leaves padding out", "", "it computes padding too")
_RESIZES = frozenset({"aten.resize_", "aten.resize_as_"})


class Answers:
    """Gives the results of operators.

    Args:
        ledger: takes notes of what was assumed.
        assumptions: give values that nobody has.
        rules: what operators return on the target, where torch's kernels here do not.
        evidence: takes note of all layouts.
    """

    def __init__(
        self,
        ledger: Ledger,
        assumptions: Assumptions,
        *,
        rules: Mapping[OpOverload, ResultRule],
        evidence: Evidence | None = None,
    ) -> None:
        self.rests_on: Unknown | None = None
        self._ledger = ledger
        self._assumptions = assumptions
        self._rules = rules
        self._shapes = shapes.Shapes(rules, None if evidence is None else evidence.laid)

    def give(self, call: Dispatched, given: Given, place: Place) -> Any:
        """The result of a call.

        Raises:
            ValueNeededError: if it depends on values that are not known.
            UnsupportedOpError: if nothing tells its layout.

        ``rests_on`` says afterwards what was assumed of the values that it gave.
        """
        operator = call.operator
        self.rests_on = None
        if operator.is_view and not sparse.is_copied(call.func, call.args):
            return call.run()
        all_known = given.decided
        if operator.is_unusual or _takes_unusual(call.args):
            return self._unusual(call, place, all_known)
        if operator.needs_values and all_known:
            if not sizes.is_plain_indexing(call):
                self._assumptions.decided(given.deciding)
            return call.run()
        if call.func is _SCALAR:
            return self._scalar(call, given.entries[0], place)
        if call.func is _EQUAL:
            return self._assumptions.branch(place)
        if call.func is packed.PACK:
            if not known.is_real(call.args[1]):
                raise value_needed("the length of a sequence", place)
            return packed.pack(call)
        try:
            layout = self._layout(call, place)
        except shapes.NeedsValueError:
            if all_known:
                self._assumptions.decided(given.deciding)
                return call.run()
            layout = self._found(call, place)
            if self.rests_on is not None and known.all_small(layout, sizes.MOST_PLACES):
                return sizes.everything(call)
            self.rests_on = None
        runs_here = all_known or operator.is_uninitialised
        if runs_here and call.func not in self._rules and known.all_small(layout):
            try:
                return call.run()
            except RuntimeError as error:
                if not _cpu_lacks_it(error):
                    raise
            return _hollow(call, layout)
        return self._taken_for_granted(call, layout, place)

    def _unusual(self, call: Dispatched, place: Place, all_known: bool) -> Any:
        """The result of an operator on tensors that are not plain, or of a collective."""
        if collectives.concerns(call.func):
            return collectives.result(call)
        if quantized.concerns(call):
            return call.run() if all_known else _quantized(call, place)
        if sparse.concerns(call.func, call.args):
            made = _sparse(call, place)
            if sparse.is_bound(call.func, call.args):
                most = f"{made._nnz()}, as many as there may be"
                self._ledger.note(Unknown(_ENTRIES, place.source or "", most))
            return made
        if call.func is _LEFT_ALIGNED and not self._assumptions.how.strict:
            self._ledger.note(replace(_PADDED, where=place.source or ""))
            return False
        raise UnsupportedOpError(
            f"operator {call.operator.name}: nested tensors of the strided layout are not "
            f"modelled, at {place.module} ({place.source}); make them with layout=torch.jagged"
        )

    def _taken_for_granted(self, call: Dispatched, layout: Any, place: Place) -> Any:
        """Hollow results, but for choices among scores and tests for finite numbers."""
        if self._assumptions.how.strict:
            return _hollow(call, layout)
        is_finite = choices.finite(call.func, call.args)
        if is_finite is not None and known.all_small(layout):
            self.rests_on = choices.of_finite(place.source or "")
            return torch.full(layout.size, is_finite)
        routing = self._assumptions.how.routing
        choice = choices.chosen(call.func, call.args, call.kwargs, layout, routing)
        if choice is None:
            return _hollow(call, layout)
        position, values = choice
        self.rests_on = choices.of_choice(place.source or "", routing)
        if position is None:
            return values
        results = list(_hollow(call, layout))
        results[position] = values
        return tuple(results)

    def _found(self, call: Dispatched, place: Place) -> Any:
        """The layout of results whose size nobody knows: an assumed one, which is noted."""
        if call.operator.written:
            return layouts(call.argument(call.operator.written[0]))
        mask = sizes.mask_of(call)
        if mask is not None and all(e.known for e in self._ledger.entries_of(mask)):
            self._assumptions.decided(self._ledger.entries_of(mask))
            return sizes.found(call, int(mask.count_nonzero()))
        bound = sizes.bound(call)
        count = self._assumptions.size(place, call.operator.name, bound)
        if count == bound and self._is_known_if_all(call):
            self.rests_on = Unknown("which elements are found", place.source or "", "all")
        return sizes.found(call, count)

    def _is_known_if_all(self, call: Dispatched) -> bool:
        """Whether the values of a result are known where all that may be is found."""
        taken = sizes.taken_from(call)
        return taken is not None and all(
            entry.known for part in taken for entry in self._ledger.entries_of(part)
        )

    def _scalar(self, call: Dispatched, entry: Entry, place: Place) -> bool | float:
        """The value of an unknown scalar: an assumption of a branch, or for torch.optim.

        Optimizers ask whether they have converged (LBFGS) or clip by a norm (Adafactor).
        """
        line = asked_by_optimizer()
        value = optimizer_values.assumed(call.args[0], entry.compared)
        if line is not None and value is not None:
            self._ledger.note(optimizer_values.note(line))
            return value
        if call.args[0].dtype is torch.bool:
            return self._assumptions.branch(place)
        return self._assumptions.number(place, "a value of a tensor", entry.most)

    def _layout(self, call: Dispatched, place: Place) -> Any:
        try:
            return self._shapes.of(call.func, call.args, call.kwargs)
        except shapes.NoShapeRuleError as error:
            return self._assumed(call, place, error)

    def _assumed(self, call: Dispatched, place: Place, error: Exception) -> Any:
        what = f"operator {call.operator.name} has no fake kernel"
        where = f"{place.module} ({place.source})" if place.source else place.module
        advice = "give it one with torch.library.register_fake, or graphmem.register_rule"
        if self._assumptions.how.strict:
            raise UnsupportedOpError(f"{what}, at {where}; {advice}") from error
        try:
            layout = shapes.assumed(call.func, call.args, call.kwargs)
        except shapes.NoShapeRuleError:
            raise UnsupportedOpError(f"{what} and takes no tensor, at {where}; {advice}") from error
        nbytes = sum(item.nbytes for item in known.layouts_in(layout))
        assumed = "each result is as large as its largest input; no scratch"
        self._ledger.note(Unknown(what, where, assumed, nbytes))
        return layout


def _takes_unusual(args: tuple[Any, ...]) -> bool:
    """Whether an argument is a sparse, quantized or nested tensor."""
    for a in args:
        if isinstance(a, Tensor) and (
            a.layout is not _STRIDED or a.is_quantized or a.is_nested  # one look at each
        ):
            return True
    return False


def _cpu_lacks_it(error: RuntimeError) -> bool:
    """Whether only the CPU can't run an operator that has a layout: the target's own do.

    Fused attention has no kernel for the CPU; softmax's refuses to convert (aten/src/ATen/
    native/SoftMax.cpp); others refuse a dtype.
    """
    return isinstance(error, NotImplementedError) or "not supported on CPU" in str(error)


def _hollow(call: Dispatched, layout: Any) -> Any:
    """Hollow results of a layout; arguments that are written and returned are themselves."""
    returns = call.operator.returns_written
    if not returns:
        return None
    if call.operator.name in _RESIZES:
        _resize(call.args[0], layout)
    if not call.operator.written:
        many = isinstance(layout, tuple) and not isinstance(layout, Layout)
        return tuple(map(hollow_results, layout)) if many else hollow_results(layout)
    results = [
        hollow_results(value) if position is None else call.argument(position)
        for value, position in zip(layout if len(returns) > 1 else (layout,), returns, strict=True)
    ]
    return tuple(results) if len(returns) > 1 else results[0]


def _resize(tensor: Tensor, layout: Layout) -> None:
    """``resize_``: a larger size takes a new allocation and lets the old one go."""
    storage = tensor.untyped_storage()
    if layout.nbytes > storage.nbytes():
        storage = hollow_storage(layout.nbytes)
    tensor.data = on_storage(storage, layout.size, layout.stride, layout.dtype)


def _sparse(call: Dispatched, place: Place) -> Any:
    node = torch._C._current_autograd_node()
    try:
        if call.func is sparse.CLONE and node is not None and accumulates(node):
            return sparse.shared(call.args[0])
        return sparse.result(call.func, call.args, call.kwargs)
    except shapes.NoShapeRuleError as error:
        raise UnsupportedOpError(
            f"operator {call.operator.name} on sparse tensors is not modelled, at "
            f"{place.module} ({place.source}); use dense tensors there"
        ) from error


def _quantized(call: Dispatched, place: Place) -> Any:
    try:
        return quantized.result(call)
    except shapes.NoShapeRuleError as error:
        raise UnsupportedOpError(
            f"operator {call.operator.name} on quantized tensors is not modelled, at "
            f"{place.module} ({place.source}); analyze the model before it is quantized"
        ) from error


def accumulates(node: torch.autograd.graph.Node) -> bool:
    """Whether a node is an AccumulateGrad, the end of the graph at a leaf."""
    return node.name() == "torch::autograd::AccumulateGrad"
