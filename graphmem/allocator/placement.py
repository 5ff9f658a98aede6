"""Placement: a schedule's storages in blocks, as the caching allocator hands them out.

Requests go to the allocator in the order of the schedule: what stands in memory before
the first operation, then for each operation its results, the stages of its scratch (each
freed before the next), and the deaths after it.

With a capacity the allocator gives free segments back before it runs out, as PyTorch's
does. Where even that is not enough, the first such request is noted and the run goes on as
if the GPU had what is missing: so one run tells both where it ends and how much it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphmem.allocator.blocks import Block
from graphmem.allocator.caching import CachingAllocator, OutOfMemoryError
from graphmem.allocator.driver import SimpleDriver
from graphmem.allocator.settings import AllocatorSettings
from graphmem.allocator.watch import Watch
from graphmem.errors import UsageError
from graphmem.schedule import BEFORE, Operation, Schedule, Storage


@dataclass(frozen=True, slots=True)
class Shortage:
    """The first request that a capacity had no memory for, after everything was given back.

    ``operation`` is its index, BEFORE where none had begun; ``storage`` what was to be
    placed, None for scratch.
    """

    operation: int
    storage: int | None
    requested_bytes: int


@dataclass(frozen=True, slots=True)
class Placement:
    """What the allocator gave.

    ``block_bytes[i]`` is the size of the block of storage ``i``, rounding and unsplit slack
    included, 0 where it takes none; ``scratch_bytes[i]`` the most that operation ``i``'s
    scratch takes; ``reserved_bytes[i]`` the most that is held in segments while operation
    ``i`` runs (and, of the first, before it). ``shortage`` is None where all had its place.
    """

    block_bytes: tuple[int, ...]
    scratch_bytes: tuple[int, ...]
    reserved_bytes: tuple[int, ...]
    shortage: Shortage | None = None


def place(
    schedule: Schedule,
    on_device: Callable[[Storage], bool],
    settings: AllocatorSettings | None = None,
    capacity: int | None = None,
    total: int | None = None,
    watch: Watch | None = None,
) -> Placement:
    """Run a schedule through the caching allocator; all scratch is on the default stream.

    Args:
        on_device: whether a storage lies in the device's memory.
        capacity: the bytes that the process may take from the device; None: without end.
        total: the device's memory, of which a memory fraction is a part; None: ``capacity``.
        watch: who is told of every block.

    Raises:
        UsageError: for a memory fraction of 0, with which nothing can ever be placed.
    """
    if settings is not None and settings.memory_fraction == 0 and total is not None:
        raise UsageError("per_process_memory_fraction:0 leaves a process no memory: raise it")
    run = _Run(schedule, on_device, settings, (capacity, total), watch or Watch())
    for storage in schedule.storages:
        if storage.born == BEFORE:
            run.take(storage, BEFORE)
    return run.finish([run.operation(op) for op in schedule.operations])


class _Run:
    def __init__(
        self,
        schedule: Schedule,
        on_device: Callable[[Storage], bool],
        settings: AllocatorSettings | None,
        limits: tuple[int | None, int | None],
        watch: Watch,
    ) -> None:
        self._schedule = schedule
        self._on_device = on_device
        self._watch = watch
        self._driver: SimpleDriver = watch.driver(*limits)
        self._allocator = CachingAllocator(settings, driver=self._driver)
        self._blocks: dict[int, Block] = {}
        self._sizes = [0] * len(schedule.storages)
        self._shortage: Shortage | None = None
        self._reserved = 0

    def take(self, storage: Storage, operation: int) -> None:
        if storage.nbytes and self._on_device(storage):
            block = self._malloc(storage.nbytes, operation, storage.id, storage.stream)
            self._blocks[storage.id] = block
            self._sizes[storage.id] = block.size

    def operation(self, op: Operation) -> tuple[int, int]:
        """The most bytes of the scratch's blocks at one time, and the most bytes reserved."""
        for i in op.allocates:
            self.take(self._schedule.storages[i], op.index)
        self._watch.full(self._allocator, op.index)
        scratch = max((self._stage(stage, op.index) for stage in op.scratch), default=0)
        for i in op.frees:
            found = self._blocks.pop(i, None)
            if found is not None:
                self._free(found, op.index, i)
        reserved = max(self._reserved, self._allocator.stats.reserved.current)
        self._reserved = 0
        return scratch, reserved

    def _stage(self, stage: tuple[int, ...], operation: int) -> int:
        """The bytes of the blocks of one stage of scratch, which are freed again."""
        blocks = [self._malloc(nbytes, operation, None) for nbytes in stage if nbytes]
        taken = sum(block.size for block in blocks)
        self._watch.full(self._allocator, operation)
        for block in blocks:
            self._free(block, operation, None)
        return taken

    def _free(self, block: Block, operation: int, storage: int | None) -> None:
        self._watch.freed(block, operation, storage)
        self._allocator.free(block)

    def _malloc(self, nbytes: int, operation: int, storage: int | None, stream: int = 0) -> Block:
        """A block, with memory that the device does not have if need be."""
        self._watch.asked(operation, stream)
        while True:
            try:
                block = self._allocator.malloc(nbytes, stream)
            except OutOfMemoryError as error:
                self._shortage = self._shortage or Shortage(operation, storage, nbytes)
                self._driver.lend(error.segment_bytes)
            else:
                self._reserved = max(self._reserved, self._allocator.stats.reserved.current)
                self._watch.allocated(block, operation, storage)
                return block

    def finish(self, operations: list[tuple[int, int]]) -> Placement:
        self._watch.finished(self._allocator)
        return Placement(
            block_bytes=tuple(self._sizes),
            scratch_bytes=tuple(scratch for scratch, _ in operations),
            reserved_bytes=tuple(reserved for _, reserved in operations),
            shortage=self._shortage,
        )
