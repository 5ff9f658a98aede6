"""Answers: what an operator returns in a trace, without its kernel.

1. A view is made by torch's own kernel: it touches no data.
2. Where all inputs are known and the result is small, torch's own kernel computes it, if
   the CPU has one.
3. Everything else is hollow, laid out as ``shapes`` says; arguments that are written and
   returned are returned themselves.

What needs values that nobody has is an error that names the line; what no kernel tells
the layout of is assumed and noted, or refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from graphmem.errors import UnsupportedOpError, ValueNeededError
from graphmem.schedule import TOP_LEVEL, Unknown
from graphmem.targets import Layout, ResultRule
from graphmem.trace import known, optimizer_values, packed, shapes, sparse
from graphmem.trace.evidence import Evidence
from graphmem.trace.hollow import hollow_results, hollow_storage, on_storage
from graphmem.trace.ledger import Entry, Ledger
from graphmem.trace.operator import Dispatched
from graphmem.trace.place import Place, asked_by_optimizer

_SCALAR = torch.ops.aten._local_scalar_dense.default
_RESIZES = frozenset({"aten.resize_", "aten.resize_as_"})


class Answers:
    """Gives the results of operators.

    Args:
        ledger: takes notes of what was assumed.
        strict: refuse operators whose result would have to be assumed.
        rules: what operators return on the target, where torch's kernels here do not.
        evidence: takes note of all layouts.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        strict: bool,
        rules: Mapping[OpOverload, ResultRule],
        evidence: Evidence | None = None,
    ) -> None:
        self._ledger = ledger
        self._strict = strict
        self._rules = rules
        self._shapes = shapes.Shapes(rules, None if evidence is None else evidence.laid)

    def give(self, call: Dispatched, inputs: list[Entry], place: Place) -> Any:
        """The result of a call whose tensors have the entries ``inputs``.

        Raises:
            ValueNeededError: if it depends on values that are not known.
            UnsupportedOpError: if nothing tells its layout.
        """
        operator = call.operator
        if operator.is_view:
            return call.run()
        if sparse.concerns(call.func, call.args):
            return _sparse(call, place)
        all_known = all(entry.known for entry in inputs)
        if operator.needs_values and (all_known or call.func is _SCALAR):
            return call.run() if all_known else self._scalar(call, inputs[0], place)
        if call.func is packed.PACK:
            if not known.is_real(call.args[1]):
                raise value_needed("the length of a sequence", place)
            return packed.pack(call)
        try:
            layout = self._layout(call, place)
        except shapes.NeedsValueError as error:
            if all_known:
                return call.run()
            what = f"{operator.name} on a tensor"
            raise value_needed(what, place) from error
        runs_here = call.func not in self._rules and not operator.is_uninitialised
        if all_known and runs_here and known.all_small(layout):
            try:
                return call.run()
            except RuntimeError as error:
                if not _cpu_lacks_it(error):
                    raise
        return _hollow(call, layout)

    def _scalar(self, call: Dispatched, entry: Entry, place: Place) -> bool | float:
        """The value of an unknown scalar: an assumption where torch.optim asks for it.

        Optimizers ask whether they have converged (LBFGS) or clip by a norm (Adafactor).
        """
        line = asked_by_optimizer()
        value = optimizer_values.assumed(call.args[0], entry.compared)
        if line is None or value is None:
            raise value_needed("a value of a tensor", place)
        self._ledger.note(optimizer_values.note(line))
        return value

    def _layout(self, call: Dispatched, place: Place) -> Any:
        try:
            return self._shapes.of(call.func, call.args, call.kwargs)
        except shapes.NoShapeRuleError as error:
            return self._assumed(call, place, error)

    def _assumed(self, call: Dispatched, place: Place, error: Exception) -> Any:
        what = f"operator {call.operator.name} has no fake kernel"
        where = f"{place.module} ({place.source})" if place.source else place.module
        advice = "give it one with torch.library.register_fake"
        if self._strict:
            raise UnsupportedOpError(f"{what}, at {where}; {advice}") from error
        try:
            layout = shapes.assumed(call.func, call.args, call.kwargs)
        except shapes.NoShapeRuleError:
            raise UnsupportedOpError(f"{what} and takes no tensor, at {where}; {advice}") from error
        nbytes = sum(item.nbytes for item in known.layouts_in(layout))
        assumed = "each result is as large as its largest input; no scratch"
        self._ledger.note(Unknown(what, where, assumed, nbytes))
        return layout


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
            f"{place.module} ({place.source}); use a dense gradient (sparse=False)"
        ) from error


def accumulates(node: torch.autograd.graph.Node) -> bool:
    """Whether a node is an AccumulateGrad, the end of the graph at a leaf."""
    return node.name() == "torch::autograd::AccumulateGrad"


def value_needed(what: str, place: Place) -> ValueNeededError:
    """The error for code that needs values that an analysis does not have."""
    where = place.source or "torch's own code"
    inside = "" if place.module == TOP_LEVEL else f" in module {place.module}"
    return ValueNeededError(
        f"{where}{inside}: {what} decides how the model goes on, and an analysis has no data; give "
        "an example value for the input that it comes from (--input NAME=8x128:int64=1, or a "
        "tensor with data in Python)"
    )
