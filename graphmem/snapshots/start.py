"""What stood in memory when a trace began: the final state, with the trace undone.

1. The segments of the start are the final ones, less those that the trace took from the
   driver, and with those that it gave back (undone from the last event to the first).
2. A block stood there if the trace frees it before it allocates it, or if it is in the
   final state and the trace never allocates it.
3. The size of a block that is in the final state is known. That of a block that the trace
   frees is its rounded request, and in the large pool perhaps slack of up to 1 MiB: free
   blocks of that pool are always larger than 1 MiB (``should_split``), so a smaller gap up
   to the next block is slack; and where the first allocation in a larger gap, while the
   block lives, lies behind its rounded end, the block ended there.
4. Everything else is free.

Not covered: slack before a larger gap in which nothing is allocated while the block lives
(the gap is taken to be free); the addresses that expandable segments had reserved below
their lowest mapped page.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from graphmem.allocator import AllocatorSettings, Piece, Segment, State
from graphmem.allocator.settings import SMALL_BYTES, SMALL_SEGMENT_BYTES
from graphmem.allocator.sizes import round_request
from graphmem.errors import ModelLoadError
from graphmem.snapshots.trace import Action, DeviceTrace, Entry


def starting_segments(trace: DeviceTrace, settings: AllocatorSettings) -> tuple[Segment, ...]:
    """The segments and blocks before the first event of a device's trace.

    Raises:
        ModelLoadError: if the trace and the final state contradict each other.
    """
    found = _standing(trace)
    addresses = [block.address for block in found]
    ends = _first_use_behind(trace.entries, found, addresses)
    segments = []
    extents = _extents(trace, settings)
    for extent, following in pairwise(extents):
        if extent.end > following.address:
            raise ModelLoadError(f"the segments at {following.address:#x} overlap at the start")
    for extent in extents:
        first, last = bisect_left(addresses, extent.address), bisect_left(addresses, extent.end)
        segments.append(_filled(extent, found[first:last], ends, settings))
    return tuple(segments)


# -- 1. segments


@dataclass(frozen=True, slots=True)
class _Extent:
    """A segment, or a mapped run of an expandable one, whatever is in it."""

    address: int
    end: int
    stream: int
    small: bool
    expandable: bool


def _extents(trace: DeviceTrace, settings: AllocatorSettings) -> list[_Extent]:
    """The segments at the start, by address: the final ones with the trace undone."""
    now = {
        s.address: _Extent(s.address, s.address + s.size, s.stream, s.small, s.expandable)
        for s in trace.segments
    }
    for entry in reversed(trace.entries):
        start, end = entry.address, entry.address + entry.size
        match entry.action:
            case Action.SEGMENT_ALLOC | Action.SEGMENT_MAP:
                _take_out(now, entry)
            case Action.SEGMENT_FREE:
                small = entry.size == SMALL_SEGMENT_BYTES  # none of the large pool is as small
                now[start] = _Extent(start, end, entry.stream, small, expandable=False)
            case Action.SEGMENT_UNMAP:
                _put_in(now, entry, settings)
    return sorted(now.values(), key=lambda extent: extent.address)


def _take_out(now: dict[int, _Extent], entry: Entry) -> None:
    """Undo a segment, or a part of a mapped run."""
    start, end = entry.address, entry.address + entry.size
    extent = next((e for e in now.values() if e.address <= start and end <= e.end), None)
    if extent is None or (not extent.expandable and (start, end) != (extent.address, extent.end)):
        raise ModelLoadError(f"the segment at {start:#x} is taken, but not there afterwards")
    del now[extent.address]
    for left, right in ((extent.address, start), (end, extent.end)):
        if left < right:
            now[left] = _Extent(left, right, extent.stream, extent.small, expandable=True)


def _put_in(now: dict[int, _Extent], entry: Entry, settings: AllocatorSettings) -> None:
    """Undo an unmapping: one run with what was mapped at both ends.

    Where nothing was, its size tells the pool: whole pages of the large one, or not.
    """
    start, end = entry.address, entry.address + entry.size
    before = next((e for e in now.values() if e.end == start and e.expandable), None)
    after = now.get(end)
    small = entry.size % settings.large_segment_bytes != 0
    for extent in (before, after):
        if extent is not None and extent.expandable:
            small = extent.small
            start, end = min(start, extent.address), max(end, extent.end)
            del now[extent.address]
    now[start] = _Extent(start, end, entry.stream, small, expandable=True)


# -- 2. blocks


@dataclass(frozen=True, slots=True)
class _Standing:
    """A block of the start. ``size`` None: not known; ``freed``: by which event, if any."""

    address: int
    requested: int
    size: int | None
    freed: int | None
    pending: bool = False


def _standing(trace: DeviceTrace) -> list[_Standing]:
    """The blocks at the start, by address."""
    known: dict[int, _Standing] = {}
    seen: set[int] = set()
    for index, entry in enumerate(trace.entries):
        if entry.action is Action.ALLOC:
            seen.add(entry.address)
        elif entry.address not in seen and entry.action in _FREES:
            seen.add(entry.address)
            pending = entry.action is Action.FREE_COMPLETED
            known[entry.address] = _Standing(entry.address, entry.size, None, index, pending)
    for piece in (piece for segment in trace.segments for piece in segment.pieces):
        if piece.state is not State.FREE and piece.address not in seen:
            pending = piece.state is State.PENDING
            known[piece.address] = _Standing(
                piece.address, piece.requested, piece.size, None, pending
            )
    return sorted(known.values(), key=lambda block: block.address)


_FREES = (Action.FREE_REQUESTED, Action.FREE_COMPLETED)


# -- 3. sizes


def _first_use_behind(
    entries: Sequence[Entry], found: list[_Standing], addresses: list[int]
) -> dict[int, int]:
    """For a block of the start: where the first allocation behind it, while it lives, lies."""
    first: dict[int, int] = {}
    for index, entry in enumerate(entries):
        if entry.action is Action.ALLOC:
            at = bisect_right(addresses, entry.address) - 1
            if at >= 0 and index < (found[at].freed or len(entries)):
                first.setdefault(addresses[at], entry.address)
    return first


def _size_of(
    block: _Standing, room: int, extent: _Extent, ends: dict[int, int], settings: AllocatorSettings
) -> int:
    """The bytes of a block with ``room`` up to the next one, or to the segment's end."""
    if block.size is not None:
        return block.size
    size = round_request(block.requested, settings)
    if extent.small or extent.expandable:
        return size
    slack = ends.get(block.address, block.address + size) - block.address - size
    if room - size <= SMALL_BYTES or settings.is_oversize(size):
        return room
    return size + slack if 0 < slack <= SMALL_BYTES else size


# -- 4. the whole


def _filled(
    extent: _Extent, blocks: list[_Standing], ends: dict[int, int], settings: AllocatorSettings
) -> Segment:
    """A segment with its blocks, and free pieces in between."""
    pieces, at = [], extent.address
    limits = [*(block.address for block in blocks), extent.end][1:]
    for block, limit in zip(blocks, limits, strict=True):
        size = _size_of(block, limit - block.address, extent, ends, settings)
        if block.address + size > limit:
            raise ModelLoadError(f"the block at {block.address:#x} reaches into the next one")
        pieces += _free(at, block.address)
        state = State.PENDING if block.pending else State.ALLOCATED
        pieces.append(Piece(block.address, size, state, block.requested))
        at = block.address + size
    pieces += _free(at, extent.end)
    size = extent.end - extent.address
    return Segment(
        extent.address, size, extent.stream, extent.small, extent.expandable, tuple(pieces)
    )


def _free(start: int, end: int) -> list[Piece]:
    return [Piece(start, end - start, State.FREE)] if end > start else []
