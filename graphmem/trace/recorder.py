"""The recorder: a dispatch mode that answers every operator on hollow tensors.

Below autograd and autocast, each operator arrives here as it would at the CPU's kernels.
The recorder gives its result (see ``answers``), enters new storages in the ledger, and
notes what is read and written, by whom, when and where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from graphmem.options import Target
from graphmem.schedule import TOP_LEVEL, Category, Scratch, Unknown
from graphmem.targets import (
    Bytes,
    Context,
    Rule,
    layouts,
    overrides,
    result_rules,
    rule_of,
    turns,
    workspace_of,
)
from graphmem.targets import Call as ScratchCall
from graphmem.trace import bounded, engine, known, optimizer_values, packed, sparse
from graphmem.trace.answers import Answers, accumulates
from graphmem.trace.assumptions import Assuming, Assumptions
from graphmem.trace.books import Books
from graphmem.trace.evidence import Evidence
from graphmem.trace.flops import Flops
from graphmem.trace.foreign import Overwritten
from graphmem.trace.graph import GraphBuilder
from graphmem.trace.knowledge import Given, forget, spoil
from graphmem.trace.ledger import Entry
from graphmem.trace.moments import Moment, Moments
from graphmem.trace.operator import Dispatched, describe

_VIEWS = torch._C.DispatchKey.ADInplaceOrView
_AUTOCAST = (torch._C.DispatchKey.AutocastCPU, torch._C.DispatchKey.AutocastCUDA)


_CUSPARSE = Unknown("the buffers of cuSPARSE", "products of sparse matrices", "nothing")


class Recorder(TorchDispatchMode):
    """Records every operator that runs while it is active.

    Args:
        target: whose kernels' scratch is counted.
        context: the GPU that they are chosen for.
        assuming: what to take for what is not known.
        evidence: takes note of what rules are asked.
    """

    def __init__(
        self,
        *,
        target: Target = Target.CUDA,
        assuming: Assuming | None = None,
        context: Context | None = None,
        evidence: Evidence | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._target = target
        self._gpu = (context or Context()).gpu
        self._rules: dict[OpOverload, Rule | None] = {}
        self._evidence = evidence
        self._overrides = overrides(target)
        self._threads: set[str] = set()
        self.moments = Moments()
        self.places = self.moments.places
        self.books = Books(self.moments)
        self.ledger = self.books.ledger
        self.overwritten = Overwritten()
        self.graph: GraphBuilder | None = None
        self.flops = Flops()
        self.autocast_on = False
        self.compiles = False  # what runs now is to be compiled
        self.is_cast: Callable[[str], bool] = lambda operator: False
        self._paused = 0
        self._calibrating = False
        self._additions = engine.Additions()
        self._own = result_rules(target)
        for func in self._own:
            describe(func)  # while the dispatcher has no kernel of the target's yet
        self.assumptions = Assumptions(self.ledger, assuming or Assuming())
        self._answers = Answers(self.ledger, self.assumptions, rules=self._own, evidence=evidence)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Dispatch straight to us: wrapping each call for torch.compile costs, and imports it."""
        return False

    def ignore_compile_internals(self) -> bool:  # type: ignore[override]
        """Dynamo leaves code under a mode as it is, unless the mode says otherwise."""
        return self.compiles

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

    @property
    def operators(self) -> tuple[OpOverload, ...]:
        """Every operator that ran, once."""
        return tuple(self._rules)

    # -- dispatch

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if types and any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # the subclass says what it runs on what it is made of
        operator = describe(func)
        if self._calibrating and not operator.is_composite:
            self._additions.watch(func, args)
            return func(*args, **kwargs)
        if self._paused and not self._calibrating:
            return func(*args, **kwargs)
        if operator.is_bookkeeping:
            return func(*args, **kwargs)
        if operator.is_in_python:
            with self:
                return func._op_dk(torch._C.DispatchKey.CPU, *args, **kwargs)
        if operator.is_composite and func not in self._own:
            override = self._overrides.get(func)
            with self._as_composed(func), self:
                result = (override or func.decompose)(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return self._record(Dispatched(func, args, kwargs, operator))

    @contextmanager
    def _as_composed(self, func: OpOverload) -> Iterator[None]:
        """Dispatch as it was above this mode: with the kernels that track views, and autocast.

        Composite operators arrive here whole under inference_mode only. They look whether a
        view of a weight requires a gradient (``should_fold`` in aten/src/ATen/native/
        LinearAlgebra.cpp), which those kernels see to. What they run is cast where autocast
        is on, unless autocast has cast the composite operator itself: it is off below that.
        """
        before = self.autocast_on
        self.autocast_on = before and not self.is_cast(func.name())
        excluded = torch._C._dispatch_tls_local_exclude_set()
        for key in (_VIEWS, *(_AUTOCAST if self.autocast_on else ())):
            excluded = excluded.remove(key)
        included = torch._C._dispatch_tls_local_include_set()
        try:
            with torch._C._ForceDispatchKeyGuard(included, excluded):
                yield
        finally:
            self.autocast_on = before

    def _record(self, call: Dispatched) -> Any:
        moment = self.moments.now(call.operator.name)
        inputs = self.books.entries(call.arguments)
        sums = call.func is engine.ADD and self._additions.is_engine_sum(
            call.args, moment.node, inputs
        )
        bias = call.func is engine.ADD and not sums and self._additions.is_bias(call.args, inputs)
        scattered = engine.on_own_zeros(call.func, moment.node, inputs)
        if sums or bias:
            call = call.as_call_of(engine.ADD_IN_PLACE)
        elif scattered is not None:
            call = call.as_call_of(scattered)
        if call.operator.fills:
            forget(call.args[0], list(self.ledger.entries_of(call.args[0])))
        self._keep_foreign(call)
        replaced = _written_storages(call)
        given = Given.to(call, inputs)
        result = self._answers.give(call, given, moment.place)
        if bias or (scattered is not None and torch.is_grad_enabled()):
            result = torch.ops.aten.alias.default(result)  # autograd expects a new tensor
        self.flops.count(self.moments.step, call, result, again=moment.recomputes is not None)
        begun = len(self.ledger.calls)
        for part, scratch in turns(() if given.on_host else self._scratch(call, result), result):
            self._enter_call(call, given, part, moment, scratch)
        del replaced  # ``set_`` and ``resize_`` let their old storages go after the call
        if self.graph is not None:
            self.graph.add(range(begun, len(self.ledger.calls)), call, result)
        return result

    def _enter_call(
        self, call: Dispatched, given: Given, result: Any, moment: Moment, scratch: Scratch
    ) -> None:
        """Enter an operator's results, or those that it makes in one turn, and the operation."""
        allocated = self._enter_results(call, given, result, moment)
        allocated += () if given.on_host else self._workspace(call, moment)
        written = self._entries_at(call, call.operator.written)
        changed = optimizer_values.changed(call.func, call.operator.written)
        same = changed == call.operator.written
        filled = call.args[0] if call.operator.fills else None
        spoil(written if same else self._entries_at(call, changed), given, moment, filled)
        self.books.add(call.operator.name, moment, given.entries, written, allocated, scratch)

    def _entries_at(self, call: Dispatched, positions: tuple[int, ...]) -> list[Entry]:
        """The entries of the arguments at some positions."""
        return [entry for i in positions for entry in self.ledger.entries_of(call.argument(i))]

    def _keep_foreign(self, call: Dispatched) -> None:
        """Before an operator writes on the user's own memory, keep what is there."""
        for position in call.operator.written:
            for part in known.parts_in(call.argument(position)):
                entry = self.ledger.find(part)
                if entry is not None and entry.foreign and entry.known:
                    self.overwritten.keep(entry.id, part)

    def _scratch(self, call: Dispatched, result: Any) -> Bytes:
        """What the target's kernel allocates for itself."""
        if call.func not in self._rules:
            self._rules[call.func] = rule_of(call.func, self._target)
        rule = self._rules[call.func]
        if sparse.concerns(call.func, call.args):
            if self._target is Target.CUDA and sparse.is_product(call.func):
                self.ledger.note(_CUSPARSE)
            return ()
        if rule is None:
            return ()
        asked = ScratchCall(layouts(call.args), call.kwargs, layouts(result), self._gpu)
        if self._evidence is None:
            return rule(asked)
        return self._evidence.ask(len(self.ledger.calls), call.func, rule, asked)

    # -- entering in the ledger

    def _enter_results(
        self, call: Dispatched, given: Given, result: Any, moment: Moment
    ) -> list[Entry]:
        """Enter the new storages of a result, and return them."""
        allocated = []
        rests_on = self._answers.rests_on
        computed = rests_on is not None or given.decided
        accumulated = moment.node is not None and accumulates(moment.node)
        for part in known.parts_in(result):
            entry = self.ledger.find(part)
            if entry is None:
                entry = self.books.enter(part, call.operator.name, moment)
                counts = call.func is packed.PACK and known.is_real(part)
                is_left_open = call.operator.is_uninitialised and part.numel()
                entry.known = counts or (known.is_real(part) and computed and not is_left_open)
                entry.open = known.Open(part) if is_left_open and known.is_open(part) else None
                entry.rests_on = rests_on or given.rests_on
                entry.most = None if entry.known else bounded.most(call, given.entries, part)
                entry.host = counts or given.on_host
                entry.compared = optimizer_values.comparison(call.operator.name, call.args)
                allocated.append(entry)
            entry.node = moment.number
            if accumulated:
                entry.claim(Category.GRADIENTS)
                entry.module = moment.place.module
        return allocated

    def _workspace(self, call: Dispatched, moment: Moment) -> list[Entry]:
        """The workspace that a library takes for a thread, at its first call there.

        The engine runs backward on a thread of its own, once for all backwards.
        """
        thread = "backward" if moment.node is not None else "main"
        nbytes = 0 if thread in self._threads else workspace_of(call.func, self._target, self._gpu)
        if not nbytes:
            return []
        self._threads.add(thread)
        born = len(self.ledger.calls)
        return [self.ledger.enter_bytes(nbytes, born=born, op=call.operator.name, module=TOP_LEVEL)]


def _written_storages(call: Dispatched) -> list[torch.UntypedStorage]:
    """The storages of the arguments that an operator writes, as they are before it."""
    written = [call.argument(position) for position in call.operator.written]
    return [part.untyped_storage() for part in known.parts_in(written)]
