"""Placement: a schedule's storages in blocks, as the caching allocator hands them out.

Requests go to the allocator in the order of the schedule: what stands in memory before
the first operation, then for each operation its results, the stages of its scratch (each
freed before the next), and the deaths after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphmem.allocator.blocks import Block
from graphmem.allocator.caching import CachingAllocator
from graphmem.allocator.settings import AllocatorSettings
from graphmem.schedule import BEFORE, Operation, Schedule, Storage


@dataclass(frozen=True, slots=True)
class Placement:
    """What the allocator gave.

    ``block_bytes[i]`` is the size of the block of storage ``i``, rounding and unsplit slack
    included, 0 where it takes none; ``scratch_bytes[i]`` the most that operation ``i``'s
    scratch takes; ``reserved_bytes[i]`` the segments held while operation ``i`` runs.
    """

    block_bytes: tuple[int, ...]
    scratch_bytes: tuple[int, ...]
    reserved_bytes: tuple[int, ...]


def place(
    schedule: Schedule,
    on_device: Callable[[Storage], bool],
    settings: AllocatorSettings | None = None,
) -> Placement:
    """Run a schedule through the caching allocator, on one stream.

    Args:
        on_device: whether a storage lies in the device's memory.

    Raises:
        OutOfMemoryError: never, as the device is taken to have no end.
    """
    run = _Run(schedule, on_device, CachingAllocator(settings))
    for storage in schedule.storages:
        if storage.born == BEFORE:
            run.take(storage)
    return run.finish([run.operation(op) for op in schedule.operations])


class _Run:
    def __init__(
        self,
        schedule: Schedule,
        on_device: Callable[[Storage], bool],
        allocator: CachingAllocator,
    ) -> None:
        self._schedule = schedule
        self._on_device = on_device
        self._allocator = allocator
        self._blocks: dict[int, Block] = {}
        self._sizes = [0] * len(schedule.storages)

    def take(self, storage: Storage) -> None:
        if storage.nbytes and self._on_device(storage):
            block = self._blocks[storage.id] = self._allocator.malloc(storage.nbytes)
            self._sizes[storage.id] = block.size

    def operation(self, op: Operation) -> tuple[int, int]:
        """The most bytes of the scratch's blocks at one time, and the bytes reserved."""
        for i in op.allocates:
            self.take(self._schedule.storages[i])
        scratch = max(map(self._stage, op.scratch), default=0)
        for i in op.frees:
            found = self._blocks.pop(i, None)
            if found is not None:
                self._allocator.free(found)
        return scratch, self._allocator.stats.reserved.current

    def _stage(self, stage: tuple[int, ...]) -> int:
        """The bytes of the blocks of one stage of scratch, which are freed again."""
        blocks = [self._allocator.malloc(nbytes) for nbytes in stage if nbytes]
        taken = sum(block.size for block in blocks)
        for block in blocks:
            self._allocator.free(block)
        return taken

    def finish(self, operations: list[tuple[int, int]]) -> Placement:
        return Placement(
            block_bytes=tuple(self._sizes),
            scratch_bytes=tuple(scratch for scratch, _ in operations),
            reserved_bytes=tuple(reserved for _, reserved in operations),
        )
