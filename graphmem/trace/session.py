"""A session: everything that is switched on for the time of one trace, and off again.

Afterwards, also after an error, torch and the user's objects are as they were: modules,
optimizers, gradients, random number generators, patched functions, garbage collection.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from graphmem import collector
from graphmem.devices import DEFAULT, Gpu
from graphmem.options import Target
from graphmem.schedule import BEFORE, TOP_LEVEL, Category, Schedule, Unknown
from graphmem.targets import Context, installed, not_modelled, not_reviewed
from graphmem.trace import dynamo, frames, known, quantized, values
from graphmem.trace.adopt import Adoption, StandIns
from graphmem.trace.assumptions import Assuming
from graphmem.trace.autocast import autocast_as_on_cuda, autocast_told
from graphmem.trace.collectives import parameters_agree, propagation_unseen
from graphmem.trace.evidence import Evidence
from graphmem.trace.flatten import flatten_recurrent
from graphmem.trace.gpu import WithoutNames, gpu_noticed
from graphmem.trace.kernels import foreign_kernels
from graphmem.trace.leaves import Leaves
from graphmem.trace.left import disarm_survivors, random_state_kept
from graphmem.trace.modules import ModuleCalls, category_of
from graphmem.trace.optim.blockwise import paged_states
from graphmem.trace.recorder import Recorder
from graphmem.trace.rng import states_recorded
from graphmem.trace.saved import saved_tensors
from graphmem.trace.scaler import Scalers
from graphmem.trace.shapes import NoShapeRuleError
from graphmem.trace.storages import cloned_as_tensors, resized_as_told
from graphmem.trace.wrapped import spread_before

_COMPILED = Unknown(
    "what torch.compile makes of the model",
    "torch.compile",
    "it runs as it was written; --compile (compile=True), on the model that was given to "
    "torch.compile, has the compiled run beside it",
)


_PAGED = Unknown(
    "what of paged optimizer states lies on the GPU",
    "managed memory, which the driver moves and PyTorch's allocator does not count",
    "nothing",
)

_NOT_CALLED = Unknown("modules to checkpoint that are never called", "", "no effect")


class Session:
    """One trace. Use ``active()`` as a context and run the steps inside.

    Args:
        target: whose defaults PyTorch's own choices follow (foreach on CUDA).
        dtype: the floating-point dtype to convert modules to, None to keep theirs.
        channels_last: convert their weights of four dimensions to channels last.
        assuming: what to take for what is not known.
        gpu: whose kernels are chosen under ``Target.CUDA``; None assumes one, and says so.
        evidence: takes note of what the target's rules are asked.
    """

    def __init__(
        self,
        *,
        target: Target = Target.CUDA,
        dtype: torch.dtype | None = None,
        channels_last: bool = False,
        assuming: Assuming | None = None,
        gpu: Gpu | None = None,
        evidence: Evidence | None = None,
    ) -> None:
        self.target = target
        self._evidence = evidence
        told = None if evidence is None else evidence.told
        self.context = Context(DEFAULT if gpu is None else gpu, log=told)
        self.recorder = Recorder(
            target=target, assuming=assuming, context=self.context, evidence=evidence
        )
        for unknown in not_modelled(target, gpu):
            self.recorder.ledger.note(unknown)
        self.modules = ModuleCalls(self.recorder)
        self.adoption = Adoption(StandIns(dtype, channels_last=channels_last))
        self._leaves = Leaves(self.adoption.stand_ins)
        self._groups: list[tuple[dict[str, Any], Any]] = []
        self._stepping: list[bool] = []
        self.checkpoints: tuple[str, ...] = ()  # the modules that the options checkpoint

    # -- what stands in memory before the first operation

    def module(
        self,
        root: nn.Module,
        prefix: str = "",
        adopted: Callable[[], None] = lambda: None,
    ) -> None:
        """Adopt a model: its parameters and buffers are live from the start.

        Args:
            adopted: is called once they are stand-ins, before they are counted.
        """
        self.modules.name(root, prefix)
        if dynamo.is_compiled(root):
            self.recorder.ledger.note(_COMPILED)
        if (spread := spread_before(root)) is not None:
            self.recorder.ledger.note(spread)
        with self.recorder.paused():
            self.adoption.module(root)
            if self.target is Target.CUDA:
                flatten_recurrent(root)
            adopted()
        for module in _as_moved(root, set()):
            path = self.modules.path(module)
            self._packed(module, path)
            for name, tensor in (*module._parameters.items(), *module._buffers.items()):
                if tensor is None or is_lazy(tensor):
                    continue
                full = name if path == TOP_LEVEL else f"{path}.{name}"
                for part in known.strided_parts(tensor):
                    entry = self.recorder.books.adopt(part, category_of(tensor), path, full)
                if tensor.grad is not None:
                    self.recorder.books.adopt(tensor.grad, Category.GRADIENTS, path, f"{full}.grad")
                if isinstance(tensor, nn.Parameter) and entry.module == path:
                    self.modules.own(path, tensor)

    def _packed(self, module: nn.Module, path: str) -> None:
        """Count the packed weights of a quantized module as its parameters."""
        ledger = self.recorder.ledger
        try:
            for name, nbytes in quantized.packed_weights(module):
                ledger.enter_bytes(
                    nbytes,
                    born=BEFORE,
                    op=None,
                    module=path,
                    category=Category.PARAMETERS,
                    name=f"{path}.{name}",
                )
        except NoShapeRuleError as error:
            ledger.note(Unknown(str(error), path, "nothing"))

    def optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Adopt an optimizer that the user made: its parameters and states."""
        with self.recorder.paused():
            self.adoption.optimizer(optimizer)
        for parameter, state in optimizer.state.items():
            path = self.recorder.places.parameters.get(id(parameter), TOP_LEVEL)
            for tensor in known.tensors_in(state):
                self.recorder.books.adopt(tensor, Category.OPTIMIZER_STATES, path, None)

    def leaves(
        self, tensors: Sequence[tuple[str, Tensor]], optimizers: Sequence[torch.optim.Optimizer]
    ) -> None:
        """Adopt the leaves among some tensors, and the optimized ones, that no module holds."""
        names = {id(tensor): name for name, tensor in tensors}
        for group in (group for optimizer in optimizers for group in optimizer.param_groups):
            for parameter in group["params"]:
                self._leaf(parameter, names.get(id(parameter)), optimized=True)
        for name, tensor in tensors:
            self._leaf(tensor, name, optimized=False)

    def _leaf(self, tensor: Tensor, name: str | None, *, optimized: bool) -> None:
        with self.recorder.paused():
            taken = self._leaves.take(tensor, optimized=optimized)
        if taken:
            self.recorder.books.adopt(tensor, Category.PARAMETERS, TOP_LEVEL, name)
            if tensor.grad is not None:
                self.recorder.books.adopt(tensor.grad, Category.GRADIENTS, TOP_LEVEL, None)

    def masters(self, copies: Mapping[nn.Parameter, nn.Parameter]) -> None:
        """Count fp32 copies of parameters as the optimizer's states, of the same modules."""
        parameters = self.recorder.places.parameters
        for parameter, copy in copies.items():
            parameters[id(copy)] = path = parameters.get(id(parameter), TOP_LEVEL)
            self._claim(copy, Category.OPTIMIZER_STATES, path)

    def input(
        self, tensor: Tensor, name: str, *, foreign: bool = False, host: bool = False
    ) -> None:
        """Adopt a tensor that the step is given, or reaches.

        Args:
            foreign: it is the user's own, not a stand-in.
            host: it lies in the host's memory; else it is taken to be on the device.
        """
        for part in known.strided_parts(tensor):
            entry = self.recorder.books.adopt(part, Category.INPUTS, TOP_LEVEL, name)
            entry.foreign, entry.host = foreign, host

    def copies_from_host(self, mode: WithoutNames) -> None:
        """Let code that moves tensors of the host to a GPU make copies there."""
        ledger = self.recorder.ledger

        def is_host(tensor: Tensor) -> bool:
            entries = list(ledger.entries_of(tensor))
            return bool(entries) and all(entry.host for entry in entries)

        def arrived(tensor: Tensor) -> None:
            for entry in ledger.entries_of(tensor):
                entry.host = False

        mode.is_host, mode.arrived = is_host, arrived

    # -- the run

    @contextmanager
    def active(self) -> Iterator[None]:
        """The context in which steps are recorded."""
        with ExitStack() as stack:
            stack.enter_context(dynamo.set_aside())
            stack.enter_context(random_state_kept())
            stack.enter_context(collector.set_aside())
            stack.enter_context(frames.kept_from_others())
            stack.callback(disarm_survivors)
            stack.callback(self.recorder.overwritten.put_back)
            stack.callback(self._leaves.restore)
            stack.callback(self.adoption.restore)
            stack.callback(self._restore_groups)
            stack.enter_context(self._optimizer_hooks())
            stack.enter_context(self.modules.watch())
            stack.enter_context(gpu_noticed())
            stack.enter_context(installed(self.target, self.context))
            if self.target is Target.CUDA:
                stack.enter_context(Scalers(self.recorder, self.adoption).watched())
                stack.enter_context(autocast_as_on_cuda(self.recorder))
            else:
                stack.enter_context(autocast_told(self.recorder))
            stack.enter_context(values.asked_for(self.recorder))
            stack.enter_context(foreign_kernels(self.recorder))
            stack.enter_context(parameters_agree())
            stack.enter_context(propagation_unseen(self.recorder))
            stack.enter_context(states_recorded(self.recorder))
            stack.enter_context(cloned_as_tensors(self.recorder))
            stack.enter_context(resized_as_told(self.recorder))
            stack.enter_context(self.recorder)
            self.recorder.calibrate()
            stack.enter_context(saved_tensors(self.recorder))
            yield

    def end_step(self) -> None:
        """Between two steps: Python's collector runs, and what it frees is noted."""
        before = {entry.id for entry in self.recorder.ledger.alive()}
        gc.collect()
        after = {entry.id for entry in self.recorder.ledger.alive()}
        freed = [self.recorder.ledger.entries[i] for i in before - after]
        nbytes = sum(entry.nbytes for entry in freed)
        if nbytes:
            largest = max(freed, key=lambda entry: entry.nbytes)
            self.recorder.ledger.note(
                Unknown(
                    "tensors held by reference cycles live until Python's garbage collector runs",
                    f"{largest.module} ({largest.source or largest.op})",
                    "the collector runs once, at the end of each step",
                    nbytes,
                )
            )

    def schedule(self) -> Schedule:
        """The recorded schedule."""
        ledger, choices = self.recorder.ledger, self.context.chosen()
        if self._evidence is not None:
            self._evidence.end(len(ledger.unknown))
        missing = not_reviewed(self.recorder.operators, self.target)
        for unknown in (*self.context.unknown, *missing):
            ledger.note(unknown)
        table = self.modules.table()
        for module in table:
            if module.path in self.checkpoints and not module.calls:
                ledger.note(replace(_NOT_CALLED, where=module.path))
        made = ledger.schedule(table, self.recorder.moments.step, choices)
        return replace(made, checkpoints=self.checkpoints, flops=self.recorder.flops.of(made.steps))

    # -- optimizers

    @contextmanager
    def _optimizer_hooks(self) -> Iterator[None]:
        before = register_optimizer_step_pre_hook(self._before_step)
        after = register_optimizer_step_post_hook(self._after_step)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._stepping.append(self.recorder.moments.optimizing)
        self.recorder.moments.optimizing = True
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                path = self.recorder.places.parameters.get(id(parameter), TOP_LEVEL)
                if parameter.grad is not None:
                    self._claim(parameter.grad, Category.GRADIENTS, path)
            on_gpu = self.target is Target.CUDA and not self._lies_on_host(group["params"])
            if on_gpu and _foreach_by_default(group):
                self._groups.append((group, group["foreach"]))
                group["foreach"] = True

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        # ZeroRedundancyOptimizer steps another
        self.recorder.moments.optimizing = self._stepping.pop()
        for parameter, state in optimizer.state.items():
            path = self.recorder.places.parameters.get(id(parameter), TOP_LEVEL)
            self._claim(state, Category.OPTIMIZER_STATES, path)
        if self.target is Target.CUDA:
            self._page_out(paged_states(optimizer))

    def _page_out(self, states: Iterator[Tensor]) -> None:
        """Count states in CUDA's managed memory as the host's, and say so."""
        entries = [entry for state in states for entry in self.recorder.ledger.entries_of(state)]
        nbytes = sum(entry.nbytes for entry in entries if not entry.host)
        for entry in entries:
            entry.host = True
        if nbytes:
            self.recorder.ledger.note(replace(_PAGED, bytes=nbytes))

    def _claim(self, value: Any, category: Category, path: str) -> None:
        for entry in self.recorder.ledger.entries_of(value):
            entry.claim(category)
            if entry.category is category:
                entry.module = path

    def _lies_on_host(self, parameters: Sequence[Tensor]) -> bool:
        entries = list(self.recorder.ledger.entries_of(parameters))
        return bool(entries) and all(entry.host for entry in entries)

    def _restore_groups(self) -> None:
        for group, value in reversed(self._groups):
            group["foreach"] = value
        self._groups.clear()


def _as_moved(module: nn.Module, seen: set[nn.Module]) -> Iterator[nn.Module]:
    """A module and those below it in the order in which ``module.to(device)`` moves them.

    The children come first: the order decides which of them share a segment.
    Source: torch/nn/modules/module.py, ``Module._apply`` (torch 2.13).
    """
    if module not in seen:
        seen.add(module)
        for child in module.children():
            yield from _as_moved(child, seen)
        yield module


def _foreach_by_default(group: dict[str, Any]) -> bool:
    """Whether torch.optim would choose foreach for CUDA parameters.

    Source: torch/optim/optimizer.py, ``_default_to_fused_or_foreach`` (2.13): foreach where
    neither foreach, fused nor differentiable is set and all parameters are native CUDA
    tensors. DTensors, FSDP2's shards among them, are not: each is stepped by itself.
    """
    return (
        "foreach" in group
        and group["foreach"] is None
        and not group.get("fused")
        and not group.get("differentiable")
        and all(type(p) in _FOREACH for p in group["params"] if p.grad is not None)
    )


_FOREACH = (torch.Tensor, nn.Parameter)
"""``_foreach_supported_types`` there."""
