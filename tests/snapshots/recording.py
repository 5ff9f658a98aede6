"""A schedule that runs through the allocator's model while a snapshot is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphmem.allocator import AllocatorSettings, Block
from graphmem.schedule import BEFORE, Operation, Schedule
from graphmem.snapshots import Action, DeviceTrace, Frame
from tests.snapshots.recorder import Recorder

_ALLOCATOR = Frame("", 0, "c10::cuda::CUDACachingAllocator::Native::allocate(unsigned long)")
_EMPTY = Frame("??", 0, "at::detail::empty_generic(c10::ArrayRef<long>)")


def recorded(
    schedule: Schedule,
    steps: Sequence[int] = (0, 1, 2),
    *,
    warm: Sequence[int] = (),
    native: bool = True,
) -> DeviceTrace:
    """A trace of some steps (0: loading), after others that were not recorded.

    Args:
        native: whether stacks have C++ frames.
    """
    run = _Run(schedule, native)
    for step in warm:
        run.step(step)
    since = len(run.recorder.entries)
    for step in steps:
        run.step(step)
    trace = run.recorder.trace(since)
    entries = tuple(
        replace(entry, frames=run.stacks.get(since + index, ()))
        for index, entry in enumerate(trace.entries)
    )
    return replace(trace, entries=entries)


class _Run:
    def __init__(self, schedule: Schedule, native: bool) -> None:
        self.schedule = schedule
        self.native = native
        self.recorder = Recorder(AllocatorSettings())
        self.stacks: dict[int, tuple[Frame, ...]] = {}
        self._live: dict[int, Block] = {}

    def step(self, number: int) -> None:
        if number == 0:
            for storage in self.schedule.storages:
                if storage.born == BEFORE:
                    self._take(storage.id, (Frame("load.py", 1, "main"),))
        for op in self.schedule.operations:
            if op.step == number:
                self._operation(op)

    def _operation(self, op: Operation) -> None:
        for i in op.allocates:
            self._take(i, self._stack(op, _EMPTY))
        kernel = self._stack(op, Frame("", 0, "void at::native::some_kernel<float>(long)"))
        for stage in op.scratch:
            blocks = [self._malloc(nbytes, kernel) for nbytes in stage]
            for block in blocks:
                self.recorder.free(block)
        for i in op.frees:
            self._release(i)

    def _take(self, number: int, stack: tuple[Frame, ...]) -> None:
        """A step that runs again replaces what it made before."""
        self._release(number)
        storage = self.schedule.storages[number]
        if storage.nbytes and not storage.host:
            self._live[number] = self._malloc(storage.nbytes, stack)

    def _release(self, number: int) -> None:
        block = self._live.pop(number, None)
        if block is not None:
            self.recorder.free(block)

    def _malloc(self, nbytes: int, stack: tuple[Frame, ...]) -> Block:
        block = self.recorder.malloc(nbytes)
        assert self.recorder.entries[-1].action is Action.ALLOC
        self.stacks[len(self.recorder.entries) - 1] = stack
        return block

    def _stack(self, op: Operation, caller: Frame) -> tuple[Frame, ...]:
        name = op.target.removesuffix(".default").removeprefix("aten.").replace(".", "_")
        frames = (_ALLOCATOR, caller, Frame("??", 0, f"at::_ops::{name}::call(at::Tensor const&)"))
        file, _, line = (op.source or "model.py:1").rpartition(":")
        python = Frame(file, int(line), "forward")
        return (*frames, python) if self.native else (python,)
