"""What a trace itself tells of its peaks, without a model of the allocator."""

from __future__ import annotations

from collections.abc import Iterable

from graphmem.allocator import AllocatorSettings, Segment, State
from graphmem.allocator.sizes import round_request
from graphmem.snapshots.trace import Action, DeviceTrace

_TAKEN = (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)
_GIVEN_BACK = (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)


def recorded_reserved(trace: DeviceTrace, start: Iterable[Segment]) -> int:
    """The most bytes that the segments had at one time: exact."""
    now = peak = sum(segment.size for segment in start)
    for entry in trace.entries:
        if entry.action in _TAKEN:
            now += entry.size
        elif entry.action in _GIVEN_BACK:
            now -= entry.size
        peak = max(peak, now)
    return peak


def recorded_allocated(trace: DeviceTrace, settings: AllocatorSettings) -> int:
    """The most allocated bytes, as far as the trace tells: the final ones, and it undone.

    A trace records what was asked for and not the block, so this is right but for the slack
    of large blocks: it lacks that of blocks freed before the end, and never sheds that of
    the final ones. The replay knows it: where it reproduces every decision and the final
    blocks, its peak is what ``torch.cuda.max_memory_allocated()`` said.
    """
    now = peak = sum(
        piece.size
        for segment in trace.segments
        for piece in segment.pieces
        if piece.state is State.ALLOCATED
    )
    for entry in reversed(trace.entries):
        if entry.action is Action.ALLOC:
            now -= round_request(entry.size, settings)
        elif entry.action is Action.FREE_REQUESTED:
            now += round_request(entry.size, settings)
        peak = max(peak, now)
    return peak
