"""The heap: all that the allocator's rules work on, for one device."""

from __future__ import annotations

from graphmem.allocator.blocks import Block, Pool
from graphmem.allocator.driver import Driver
from graphmem.allocator.settings import AllocatorSettings
from graphmem.allocator.sizes import is_small
from graphmem.allocator.stats import Stats


class Heap:
    """The pools, the blocks in use, the counters, and the driver below.

    ``active`` are the blocks that are handed out or wait for an event, by address;
    ``pending`` those that wait, in the order in which they were freed.
    Source: ``DeviceCachingAllocator`` in c10/cuda/CUDACachingAllocator.cpp.
    """

    def __init__(self, settings: AllocatorSettings, driver: Driver) -> None:
        self.settings = settings
        self.driver = driver
        self.stats = Stats()
        self.small = Pool(small=True)
        self.large = Pool(small=False)
        self.active: dict[int, Block] = {}
        self.pending: list[Block] = []

    def pool_of(self, size: int) -> Pool:
        """The pool that serves a rounded request."""
        return self.small if is_small(size) else self.large

    @property
    def allowed_bytes(self) -> int | None:
        """What may be reserved, where a memory fraction is set (``setMemoryFraction``)."""
        fraction, total = self.settings.memory_fraction, self.driver.total_bytes
        return None if fraction is None or total is None else int(fraction * total)

    @property
    def collects_garbage(self) -> bool:
        """Whether cached blocks age: a threshold and a memory fraction are set."""
        return self.settings.garbage_collection_threshold > 0 and self.allowed_bytes is not None
