"""A program that runs through the allocator's model and records a trace, as PyTorch does."""

from __future__ import annotations

from graphmem.allocator import AllocatorSettings, Block, CachingAllocator
from graphmem.allocator.driver import SimpleDriver
from graphmem.snapshots import Action, DeviceTrace, Entry


class Recorder:
    """An allocator whose events are written down. ``capacity`` as the driver's."""

    def __init__(self, settings: AllocatorSettings, capacity: int | None = None) -> None:
        self.entries: list[Entry] = []
        self.allocator = CachingAllocator(settings, driver=_Driver(self.entries, capacity))

    def malloc(self, nbytes: int, stream: int = 0) -> Block:
        block = self.allocator.malloc(nbytes, stream)
        self._note(Action.ALLOC, block)
        return block

    def free(self, block: Block) -> None:
        self._note(Action.FREE_REQUESTED, block)
        self._note(Action.FREE_COMPLETED, block)
        self.allocator.free(block)

    def trace(self, since: int = 0) -> DeviceTrace:
        return DeviceTrace(0, tuple(self.entries[since:]), self.allocator.segments())

    def _note(self, action: Action, block: Block) -> None:
        self.entries.append(Entry(action, block.address, block.requested, block.stream))


class _Driver(SimpleDriver):
    def __init__(self, entries: list[Entry], capacity: int | None) -> None:
        super().__init__(capacity)
        self._entries = entries

    @property
    def total_bytes(self) -> int | None:
        return None  # as in a trace

    def allocate(self, nbytes: int) -> int | None:
        address = super().allocate(nbytes)
        if address is not None:
            self._entries.append(Entry(Action.SEGMENT_ALLOC, address, nbytes, 0))
        return address

    def free(self, address: int, nbytes: int) -> None:
        super().free(address, nbytes)
        self._entries.append(Entry(Action.SEGMENT_FREE, address, nbytes, 0))

    def map(self, address: int, nbytes: int) -> bool:
        done = super().map(address, nbytes)
        if done:
            self._entries.append(Entry(Action.SEGMENT_MAP, address, nbytes, 0))
        return done

    def unmap(self, address: int, nbytes: int) -> None:
        super().unmap(address, nbytes)
        self._entries.append(Entry(Action.SEGMENT_UNMAP, address, nbytes, 0))
