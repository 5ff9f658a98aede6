"""Somebody who is told of every block and segment of a placement, as it comes and goes."""

from __future__ import annotations

from graphmem.allocator.blocks import Block
from graphmem.allocator.caching import CachingAllocator
from graphmem.allocator.driver import SimpleDriver


class Watch:
    """Takes no notice; those that do override what they want to know.

    ``operation`` is the index of the one that runs, BEFORE where none has begun; ``storage`` is
    None for scratch.
    """

    def driver(self, capacity: int | None, total: int | None) -> SimpleDriver:
        """The driver that segments come from."""
        return SimpleDriver(capacity, total)

    def asked(self, operation: int, stream: int) -> None:
        """A block is asked for: what the driver does now is for its sake."""

    def allocated(self, block: Block, operation: int, storage: int | None) -> None:
        """A block was handed out."""

    def freed(self, block: Block, operation: int, storage: int | None) -> None:
        """A block is about to be given back."""

    def full(self, allocator: CachingAllocator, operation: int) -> None:
        """The operation holds its results, or these and a stage of its scratch."""

    def finished(self, allocator: CachingAllocator) -> None:
        """The last operation has ended."""
