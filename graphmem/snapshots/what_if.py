"""The requests of a recorded trace under other settings, or with another capacity.

The blocks that stood there before the trace are requested first, in the order of their
addresses: what the allocator's free lists were before then can't be known under settings
that it did not run with. From an empty process on, this is what would have been.
"""

from __future__ import annotations

from graphmem.allocator import AllocatorSettings, Block, CachingAllocator, State
from graphmem.snapshots.start import starting_segments
from graphmem.snapshots.trace import Action, DeviceTrace


def what_if(
    trace: DeviceTrace,
    recorded: AllocatorSettings,
    settings: AllocatorSettings,
    capacity: int | None = None,
) -> CachingAllocator:
    """The allocator after a device's requests, with ``settings`` in place of ``recorded``.

    Raises:
        OutOfMemoryError: if they do not fit in the capacity.
        ModelLoadError: if the trace contradicts itself.
    """
    allocator = CachingAllocator(settings, capacity=capacity)
    live = _standing(allocator, trace, recorded)
    for entry in trace.entries:
        if entry.action is Action.ALLOC:
            live[entry.address] = allocator.malloc(entry.size, entry.stream)
        elif entry.action is Action.FREE_REQUESTED and entry.address in live:
            allocator.free(live[entry.address], pending=True)
        elif entry.action is Action.FREE_COMPLETED and entry.address in live:
            block = live.pop(entry.address)
            if block.pending:  # it may have been waited for already, to give memory back
                allocator.complete(block)
    return allocator


def _standing(
    allocator: CachingAllocator, trace: DeviceTrace, recorded: AllocatorSettings
) -> dict[int, Block]:
    """The blocks of the start, by their recorded address."""
    return {
        piece.address: allocator.malloc(piece.requested, segment.stream)
        for segment in starting_segments(trace, recorded)
        for piece in segment.pieces
        if piece.state is not State.FREE and piece.requested
    }
