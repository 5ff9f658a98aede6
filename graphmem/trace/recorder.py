"""The recorder: a dispatch mode that answers every operator on hollow tensors.

Below autograd and autocast, each operator arrives here as it would at the CPU's kernels.
The recorder gives its results (see ``shapes``), enters new storages in the ledger, and
notes what is read, written, by whom and where. Nothing is computed, except for small
tensors of which all values are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
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


class Recorder(TorchDispatchMode):
    """Records every operator that runs while it is active.

    Args:
        target: whose kernels' scratch is counted.
        strict: refuse operators whose result would have to be assumed.
    """

    def __init__(self, *, target: Target = Target.CUDA, strict: bool = False) -> None:
        super().__init__()
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
        in_backward = torch._C._current_graph_task_id() != -1
        node = torch._C._current_autograd_node() if in_backward else None
        place = self.places.backward(node) if in_backward else self.places.forward()
        inputs = self._entries_of((args, kwargs), place)
        sums = func is engine.ADD and self._additions.is_engine_sum(args, node, inputs)
        bias = func is engine.ADD and not sums and self._additions.is_bias(args, inputs)
        if sums or bias:
            func = engine.ADD_IN_PLACE
            operator = describe(func)
        result = self._result(func, operator, args, kwargs, inputs, place)
        if bias:
            result = torch.ops.aten.alias.default(result)  # autograd expects a new tensor
        scratch = self._scratch(func, args, kwargs, result)
        self._enter(operator, args, kwargs, inputs, result, place, node, in_backward, scratch)
        if self.graph is not None:
            self.graph.add(len(self.ledger.calls) - 1, func, args, kwargs, result)
        return result

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
            hollow_results(value) if position is None else _argument(operator, position, args, kwargs)
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

    def _entries_of(self, value: Any, place: Place) -> list[Entry]:
        """The entries of all tensors in arguments, adopting the ones never seen before."""
        found: list[Entry] = []
        for tensor in known.tensors_in(value):
            for part in known.strided_parts(tensor):
                entry = self.ledger.find(part)
                if entry is None:
                    entry = self._stray(part, place)
                found.append(entry)
        return found

    def stray(self, tensor: Tensor, target: str = "torch.tensor") -> None:
        """Enter a tensor that came into being below the dispatcher."""
        if torch._C._current_graph_task_id() != -1:
            self._stray(tensor, self.places.backward(torch._C._current_autograd_node()), target)
        else:
            self._stray(tensor, self.places.forward(), target)

    def _stray(self, tensor: Tensor, place: Place, target: str = "torch.tensor") -> Entry:
        """A real tensor that the trace did not make: torch.tensor(...), a constant."""
        index = len(self.ledger.calls)
        entry = self.ledger.enter(
            tensor, born=index, op=target, module=place.module, source=place.source
        )
        entry.known = known.is_real(tensor) and known.is_small(tensor)
        entry.host = True
        self._call(target, place, (), (), (entry.id,))
        return entry

    def _enter(
        self,
        operator: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: list[Entry],
        result: Any,
        place: Place,
        node: torch.autograd.graph.Node | None,
        in_backward: bool,
        scratch: int,
    ) -> None:
        index = len(self.ledger.calls)
        all_known = all(entry.known for entry in inputs)
        number = None if node is None else node._sequence_nr()
        accumulating = node is not None and _accumulates(node)
        forward = not in_backward or bool(self.places.stack)
        allocated = []
        for tensor in known.tensors_in(result):
            for part in known.strided_parts(tensor):
                entry = self.ledger.find(part)
                if entry is None:
                    entry = self.ledger.enter(
                        part, born=index, op=operator.name, module=place.module, source=place.source
                    )
                    entry.known = all_known and known.is_real(part)
                    entry.forward = forward
                    entry.compared = optimizer_values.comparison(operator.name, args)
                    entry.host = bool(inputs) and all(e.host for e in inputs)
                    allocated.append(entry.id)
                entry.node = number
                if accumulating:
                    entry.claim(Category.GRADIENTS)
                    entry.module = place.module
        written = self._written(operator, args, kwargs)
        for entry in written:
            entry.known = entry.known and all_known
            entry.node = number
        if in_backward and not forward:
            _claim_saved(inputs)
        reads = tuple(dict.fromkeys(entry.id for entry in inputs))
        writes = tuple(entry.id for entry in written)
        self._call(operator.name, place, reads, writes, tuple(allocated), scratch)

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
        place: Place,
        reads: tuple[int, ...],
        writes: tuple[int, ...],
        allocates: tuple[int, ...],
        scratch: int = 0,
    ) -> None:
        self.ledger.add(
            Call(
                target=target,
                phase=self._phase(),
                step=self.step,
                module=place.module,
                source=place.source,
                reads=reads,
                writes=writes,
                allocates=allocates,
                scratch_bytes=scratch,
            )
        )

    def _phase(self) -> Phase:
        if torch._C._current_graph_task_id() != -1:
            return Phase.BACKWARD
        if self.optimizing and not self.places.stack:  # LBFGS calls the model in its step
            return Phase.OPTIMIZER
        return Phase.FORWARD


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


def _claim_saved(inputs: list[Entry]) -> None:
    """What forward made and an autograd node reads was kept for backward, however."""
    for entry in inputs:
        if entry.forward:
            entry.claim(Category.SAVED_FOR_BACKWARD)
