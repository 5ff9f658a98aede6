"""What a trace itself tells of its peaks, without a model of the allocator."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from graphmem.allocator import AllocatorSettings, Segment, State
from graphmem.allocator.sizes import round_request
from graphmem.snapshots.trace import Action, DeviceTrace, Entry

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
    """The most allocated bytes, as far as the trace tells."""
    return max(allocated_levels(trace, settings))


def allocated_levels(trace: DeviceTrace, settings: AllocatorSettings) -> list[int]:
    """The allocated bytes before each event and after the last one, as far as the trace tells.

    They are the final ones, and the trace undone. A trace records what was asked for and not
    the block, so this is right but for the slack of large blocks: it lacks that of blocks
    freed before the end, and never sheds that of the final ones. The replay knows it: where
    it reproduces every decision and the final blocks, its peak is what
    ``torch.cuda.max_memory_allocated()`` said.

    A file without segments does not tell what was there at the end; then the blocks that are
    freed and not allocated before stood there at the beginning, and nothing else is known.
    """
    steps = [_change(entry, settings) for entry in trace.entries]
    if trace.segments:
        pieces = [piece for segment in trace.segments for piece in segment.pieces]
        start = sum(p.size for p in pieces if p.state is State.ALLOCATED) - sum(steps)
    else:
        start = _freed_only(trace, settings)
    return list(accumulate(steps, initial=start))


def _change(entry: Entry, settings: AllocatorSettings) -> int:
    if entry.action is Action.ALLOC:
        return round_request(entry.size, settings)
    return -round_request(entry.size, settings) if entry.action is Action.FREE_REQUESTED else 0


def _freed_only(trace: DeviceTrace, settings: AllocatorSettings) -> int:
    """The bytes that a trace frees without having allocated them."""
    seen: set[int] = set()
    total = 0
    for entry in trace.entries:
        if entry.action is Action.FREE_REQUESTED and entry.address not in seen:
            total += round_request(entry.size, settings)
        if entry.action in (Action.ALLOC, Action.FREE_REQUESTED):
            seen.add(entry.address)
    return total
