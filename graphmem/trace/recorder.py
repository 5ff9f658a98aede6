"""The recorder: a dispatch mode that answers every operator on hollow tensors.

Below autograd and autocast, each operator arrives here as it would at the CPU's kernels.
The recorder gives its results (see ``shapes``), enters new storages in the ledger, and
notes what is read, written, by whom and where. Nothing is computed, except for small
tensors of which all values are known.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.autograd import _make_grads
from torch.utils._python_dispatch import TorchDispatchMode

from graphmem.errors import UnsupportedOpError, ValueNeededError
from graphmem.options import Target
from graphmem.schedule import TOP_LEVEL, Category, Phase, Unknown
from graphmem.targets import Call as ScratchCall
from graphmem.targets import Layout, Rule, layouts, rule_of
from graphmem.trace import engine, known, optimizer_values, shapes, sparse
from graphmem.trace.graph import GraphBuilder
from graphmem.trace.hollow import hollow_results, hollow_storage, on_storage
from graphmem.trace.ledger import Call, Entry, Ledger
from graphmem.trace.operator import Operator, describe
from graphmem.trace.place import Place, Places, asked_by_optimizer

_SCALAR = torch.ops.aten._local_scalar_dense.default
_RESIZES = frozenset({"aten.resize_", "aten.resize_as_"})


@dataclass(frozen=True, slots=True)
class Moment:
    """Where in a run an operator comes.

    ``node`` is the autograd node that runs, ``number`` its sequence number; ``forward``
    says that the operator computes a forward, if only again in a checkpoint.
    """

    place: Place
    phase: Phase
    node: torch.autograd.graph.Node | None
    number: int | None
    forward: bool


class Recorder(TorchDispatchMode):
    """Records every operator that runs while it is active.

    Args:
        target: whose kernels' scratch is counted.
        strict: refuse operators whose result would have to be assumed.
    """

    def __init__(self, *, target: Target = Target.CUDA, strict: bool = False) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._target = target
        self._rules: dict[OpOverload, Rule | None] = {}
        self.ledger = Ledger()
        self.places = Places()
        self.graph: GraphBuilder | None = None
        self.step = 1
        self.optimizing = False
        self._strict = strict
        self._paused = 0
        self._calibrating = False
        self._additions = engine.Additions()
        self._shapes = shapes.Shapes()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Dispatch straight to us: wrapping each call for torch.compile costs, and imports it."""
        return False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Operators inside run as they are and are not recorded."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def calibrate(self) -> None:
        """Learn what in-place additions look like; call it once, when active."""
        self._calibrating = True
        try:
            self._additions.calibrate()
        finally:
            self._calibrating = False

    # -- what the rest of the trace tells the recorder

    def adopt(self, tensor: Tensor, category: Category, module: str, name: str | None) -> Entry:
        """Enter what stands in memory before the first operation."""
        entry = self.ledger.find(tensor)
        if entry is None:
            entry = self.ledger.enter(
                tensor, born=-1, op=None, module=module, source=None, name=name
            )
            entry.known = known.is_real(tensor) and known.is_small(tensor)
        entry.claim(category)
        return entry

    def claim(self, value: object, category: Category) -> None:
        """Give every tensor in a nested value a category."""
        for tensor in known.tensors_in(value):
            for part in known.strided_parts(tensor):
                entry = self.ledger.find(part)
                if entry is not None:
                    entry.claim(category)

    def saved(self, tensor: Tensor, module: str) -> None:
        """Note that autograd saves a tensor on behalf of a module."""
        for part in known.strided_parts(tensor):
            entry = self.ledger.find(part)
            if entry is not None:
                entry.claim(Category.SAVED_FOR_BACKWARD)
                if entry.saved_by is None:
                    entry.saved_by = module

    # -- dispatch

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        operator = describe(func)
        if self._calibrating and not operator.is_composite:
            self._additions.watch(func, args)
            return func(*args, **kwargs)
        if self._paused and not self._calibrating:
            return func(*args, **kwargs)
        if operator.is_bookkeeping:
            return func(*args, **kwargs)
        if operator.is_composite:
            with _above_views(), self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return self._record(func, operator, args, kwargs)

    def _record(
        self, func: OpOverload, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        moment = self._moment(operator)
        inputs = self._entries_of((args, kwargs))
        sums = func is engine.ADD and self._additions.is_engine_sum(args, moment.node, inputs)
        bias = func is engine.ADD and not sums and self._additions.is_bias(args, inputs)
        if sums or bias:
            func = engine.ADD_IN_PLACE
            operator = describe(func)
        result = self._result(func, operator, args, kwargs, inputs, moment.place)
        if bias:
            result = torch.ops.aten.alias.default(result)  # autograd expects a new tensor
        scratch = self._scratch(func, args, kwargs, result)
        allocated = self._enter_results(operator, args, inputs, result, moment)
        written = self._written(operator, args, kwargs)
        _spoil(written, inputs, moment)
        self._call(operator.name, moment, inputs, written, allocated, scratch)
        if self.graph is not None:
            self.graph.add(len(self.ledger.calls) - 1, func, args, kwargs, result)
        return result

    def _moment(self, operator: Operator) -> Moment:
        """Where in the run the operator comes."""
        if torch._C._current_graph_task_id() == -1:
            place = self.places.forward()
            if operator.name == "aten.ones_like" and _called_by(_make_grads):
                return Moment(place, Phase.BACKWARD, None, None, forward=False)
            optimizing = self.optimizing and not self.places.stack  # LBFGS runs the model
            phase = Phase.OPTIMIZER if optimizing else Phase.FORWARD
            return Moment(place, phase, None, None, forward=True)
        node = torch._C._current_autograd_node()
        number = None if node is None else node._sequence_nr()
        recomputing = bool(self.places.stack)
        place = self.places.backward(node)
        return Moment(place, Phase.BACKWARD, node, number, forward=recomputing)

    def _result(
        self,
        func: OpOverload,
        operator: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: list[Entry],
        place: Place,
    ) -> Any:
        if operator.is_view:
            return func(*args, **kwargs)
        if sparse.concerns(func, args):
            return self._sparse_result(func, operator, args, kwargs, place)
        all_known = all(entry.known for entry in inputs)
        if operator.needs_values:
            if all_known:
                return func(*args, **kwargs)
            if func is _SCALAR:
                return self._scalar(args[0], inputs[0], place)
        try:
            layout = self._shapes.of(func, args, kwargs)
        except shapes.NeedsValueError as error:
            if all_known:
                return func(*args, **kwargs)
            raise self._value_needed(func, place) from error
        except shapes.NoShapeRuleError as error:
            layout = self._assumed(func, operator, args, kwargs, place, error)
        if all_known and not operator.is_uninitialised and known.all_small(layout):
            return func(*args, **kwargs)
        return self._hollow_result(operator, args, kwargs, layout)

    def _scalar(self, tensor: Tensor, entry: Entry, place: Place) -> bool | float:
        """The value of an unknown scalar: an assumption where torch.optim asks for it.

        Optimizers ask whether they have converged (LBFGS) or clip by a norm (Adafactor).
        """
        line = asked_by_optimizer()
        value = optimizer_values.assumed(tensor, entry.compared)
        if line is None or value is None:
            raise self._value_needed(_SCALAR, place)
        self.ledger.note(optimizer_values.note(line))
        return value

    def _hollow_result(
        self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], layout: Any
    ) -> Any:
        """Hollow results of a layout; arguments that are written and returned are themselves."""
        returns = operator.returns_written
        if not returns:
            return None
        if operator.name in _RESIZES:
            self._resize(args[0], layout)
        if not operator.written:
            many = isinstance(layout, tuple) and not isinstance(layout, Layout)
            return tuple(map(hollow_results, layout)) if many else hollow_results(layout)
        results = [
            hollow_results(value)
            if position is None
            else _argument(operator, position, args, kwargs)
            for value, position in zip(
                layout if len(returns) > 1 else (layout,), returns, strict=True
            )
        ]
        return tuple(results) if len(returns) > 1 else results[0]

    def _sparse_result(
        self,
        func: OpOverload,
        operator: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        place: Place,
    ) -> Any:
        node = torch._C._current_autograd_node()
        try:
            if func is sparse.CLONE and node is not None and _accumulates(node):
                return sparse.shared(args[0])
            return sparse.result(func, args, kwargs)
        except shapes.NoShapeRuleError as error:
            raise UnsupportedOpError(
                f"operator {operator.name} on sparse tensors is not modelled, at "
                f"{place.module} ({place.source}); use a dense gradient (sparse=False)"
            ) from error

    def _resize(self, tensor: Tensor, layout: Layout) -> None:
        """``resize_``: a larger size takes a new allocation and lets the old one go."""
        storage = tensor.untyped_storage()
        if layout.nbytes > storage.nbytes():
            storage = hollow_storage(layout.nbytes)
        tensor.data = on_storage(storage, layout.size, layout.stride, layout.dtype)

    def _assumed(
        self,
        func: OpOverload,
        operator: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        place: Place,
        error: Exception,
    ) -> Any:
        what = f"operator {operator.name} has no fake kernel"
        where = f"{place.module} ({place.source})" if place.source else place.module
        advice = "give it one with torch.library.register_fake"
        if self._strict:
            raise UnsupportedOpError(f"{what}, at {where}; {advice}") from error
        try:
            layout = shapes.assumed(func, args, kwargs)
        except shapes.NoShapeRuleError:
            raise UnsupportedOpError(f"{what} and takes no tensor, at {where}; {advice}") from error
        nbytes = sum(item.nbytes for item in known.layouts_in(layout))
        assumed = "each result is as large as its largest input; no scratch"
        self.ledger.note(Unknown(what, where, assumed, nbytes))
        return layout

    def _value_needed(self, func: OpOverload, place: Place) -> ValueNeededError:
        where = place.source or "torch's own code"
        what = "a value of a tensor" if func is _SCALAR else f"{describe(func).name} on a tensor"
        return value_needed(what, where, place.module)

    def _scratch(self, func: OpOverload, args: Any, kwargs: dict[str, Any], result: Any) -> int:
        """The bytes that the target's kernel allocates for itself."""
        if func not in self._rules:
            self._rules[func] = rule_of(func, self._target)
        rule = self._rules[func]
        if rule is None or sparse.concerns(func, args):
            return 0
        return rule(ScratchCall(layouts(args), kwargs, layouts(result)))

    # -- entering in the ledger

    def _entries_of(self, value: Any) -> list[Entry]:
        """The entries of all tensors in arguments, adopting the ones never seen before."""
        found: list[Entry] = []
        for tensor in known.tensors_in(value):
            for part in known.strided_parts(tensor):
                entry = self.ledger.find(part)
                found.append(entry if entry is not None else self.stray(part))
        return found

    def stray(self, tensor: Tensor, target: str = "torch.tensor") -> Entry:
        """Enter a tensor that came into being below the dispatcher, on the host."""
        moment = self._moment(describe(torch.ops.aten.lift_fresh.default))
        entry = self._enter(tensor, target, moment)
        entry.known = known.is_real(tensor) and known.is_small(tensor)
        entry.host = True
        self._call(target, moment, [], [], [entry])
        return entry

    def _enter_results(
        self,
        operator: Operator,
        args: tuple[Any, ...],
        inputs: list[Entry],
        result: Any,
        moment: Moment,
    ) -> list[Entry]:
        """Enter the new storages of a result, and return them."""
        allocated = []
        accumulated = moment.node is not None and _accumulates(moment.node)
        for tensor in known.tensors_in(result):
            for part in known.strided_parts(tensor):
                entry = self.ledger.find(part)
                if entry is None:
                    entry = self._enter(part, operator.name, moment)
                    entry.known = known.is_real(part) and all(e.known for e in inputs)
                    entry.host = bool(inputs) and all(e.host for e in inputs)
                    entry.compared = optimizer_values.comparison(operator.name, args)
                    allocated.append(entry)
                entry.node = moment.number
                if accumulated:
                    entry.claim(Category.GRADIENTS)
                    entry.module = moment.place.module
        return allocated

    def _enter(self, tensor: Tensor, op: str, moment: Moment) -> Entry:
        place = moment.place
        entry = self.ledger.enter(
            tensor, born=len(self.ledger.calls), op=op, module=place.module, source=place.source
        )
        entry.forward = moment.forward
        return entry

    def _written(
        self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Entry]:
        written = []
        for position in range(len(operator.written)):
            value = _written_argument(operator, position, args, kwargs)
            for tensor in known.tensors_in(value):
                for part in known.strided_parts(tensor):
                    entry = self.ledger.find(part)
                    if entry is not None:
                        written.append(entry)
        return written

    def _call(
        self,
        target: str,
        moment: Moment,
        inputs: list[Entry],
        written: list[Entry],
        allocated: list[Entry],
        scratch: int = 0,
    ) -> None:
        self.ledger.add(
            Call(
                target=target,
                phase=moment.phase,
                step=self.step,
                module=moment.place.module,
                source=moment.place.source,
                reads=tuple(dict.fromkeys(entry.id for entry in inputs)),
                writes=tuple(entry.id for entry in written),
                allocates=tuple(entry.id for entry in allocated),
                scratch_bytes=scratch,
            )
        )


def _spoil(written: list[Entry], inputs: list[Entry], moment: Moment) -> None:
    """What was written is known only if all that went in is; backward reads what was saved."""
    all_known = all(entry.known for entry in inputs)
    for entry in written:
        entry.known = entry.known and all_known
        entry.node = moment.number
    if moment.node is not None and not moment.forward:
        for entry in inputs:
            if entry.forward:  # forward made it and kept it for backward, however
                entry.claim(Category.SAVED_FOR_BACKWARD)


def _called_by(function: Callable[..., Any]) -> bool:
    """Whether a Python function called the operator that is being dispatched."""
    return sys._getframe(4).f_code is function.__code__


def _above_views() -> Any:
    """Dispatch as it was above this mode: with the kernels that track views.

    Composite operators arrive here whole under inference_mode only. They look whether a
    view of a weight requires a gradient (``should_fold`` in aten/src/ATen/native/
    LinearAlgebra.cpp), which those kernels see to.
    """
    excluded = torch._C._dispatch_tls_local_exclude_set()
    return torch._C._ForceDispatchKeyGuard(
        torch._C._dispatch_tls_local_include_set(),
        excluded.remove(torch._C.DispatchKey.ADInplaceOrView),
    )


def value_needed(what: str, where: str, module: str) -> ValueNeededError:
    """The error for code that needs values that an analysis does not have."""
    inside = "" if module == TOP_LEVEL else f" in module {module}"
    return ValueNeededError(
        f"{where}{inside}: {what} decides how the model goes on, and an analysis has no data; give "
        "an example value for the input that it comes from (--input NAME=8x128:int64=1, or a "
        "tensor with data in Python)"
    )


def _accumulates(node: torch.autograd.graph.Node) -> bool:
    """Whether a node is an AccumulateGrad, the end of the graph at a leaf."""
    return node.name() == "torch::autograd::AccumulateGrad"


def _argument(
    operator: Operator, position: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return _written_argument(operator, operator.written.index(position), args, kwargs)


def _written_argument(
    operator: Operator, which: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The ``which``-th of the written arguments, given by position or by name."""
    position = operator.written[which]
    if position < len(args):
        return args[position]
    return kwargs.get(operator.written_names[which])
