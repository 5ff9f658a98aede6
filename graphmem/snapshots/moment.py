"""What was there at the peak: every block in use, and every byte that was not.

1. The *moment* is that of the first event with the most allocated bytes in the replay,
   which knows the slack of every block; in a file without segments it is that of the trace
   alone, and blocks are as large as their rounded requests.
2. A *holder* is a block that is handed out at that moment. What was asked for where is told
   by its ``alloc`` event; of a block that is older than the trace by the final state, if it
   was still in use then and its stack was recorded.
3. *Reserved* bytes are the allocated ones, those of freed blocks that wait for another
   stream, those free in a segment that is in use in part, and those of segments that are
   free as a whole (of expandable segments: of mapped runs). ``empty_cache`` gives back the
   last; the third is what fragmentation costs.
4. *Slack* is what blocks have beyond their requests: rounding, and what was not split off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from graphmem.allocator import AllocatorSettings, Segment, State
from graphmem.allocator.sizes import round_request
from graphmem.snapshots.peaks import allocated_levels
from graphmem.snapshots.replay import Player, has_segments, replay_device
from graphmem.snapshots.stacks import UNKNOWN, Site, Sites
from graphmem.snapshots.start import starting_segments
from graphmem.snapshots.trace import Action, DeviceTrace, Entry, Frame


@dataclass(frozen=True, slots=True)
class Holder:
    """A block in use at the peak.

    ``born`` is the event that allocated it, None: before the trace; ``freed`` the event in
    which it was given back, None: after the trace.
    """

    nbytes: int
    requested: int
    site: Site
    born: int | None
    freed: int | None


@dataclass(frozen=True, slots=True)
class CallSite:
    """All blocks that one place holds at the peak; ``older``: all are older than the trace."""

    nbytes: int
    blocks: int
    site: Site
    older: bool


@dataclass(frozen=True, slots=True)
class Room:
    """Where reserved bytes are; they are the sum of all but ``requested`` and ``largest_free``.

    ``requested`` is what was asked for of the allocated bytes; ``largest_free`` the largest
    free block.
    """

    reserved: int
    allocated: int
    requested: int
    pending: int
    free_in_split: int
    free_segments: int
    largest_free: int

    @property
    def slack(self) -> int:
        """The allocated bytes that nobody asked for."""
        return self.allocated - self.requested


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """The reserved bytes at the peak, of each pool and of both."""

    small: Room
    large: Room
    total: Room


@dataclass(frozen=True, slots=True)
class Moment:
    """The peak of one device; ``event`` None: before the first event.

    ``holders`` are sorted, the largest first; ``fragmentation`` is None in a file that has no
    segments.
    """

    event: int | None
    allocated: int
    holders: tuple[Holder, ...]
    fragmentation: Fragmentation | None

    @property
    def call_sites(self) -> tuple[CallSite, ...]:
        """The holders by place, the largest first."""
        return _call_sites(self.holders)


def peak_moment(
    trace: DeviceTrace, settings: AllocatorSettings, event: int | None = None
) -> Moment:
    """The state at a device's peak.

    Args:
        event: ``DeviceReplay.peak_event``, where the trace was replayed already; by default
            it is looked for.

    Raises:
        ModelLoadError: if the trace contradicts itself.
    """
    if not has_segments(trace):
        return _without_segments(trace, settings)
    if event is None:
        event = replay_device(trace, settings).peak_event
    player = Player(settings, starting_segments(trace, settings))
    for index, entry in enumerate(trace.entries[: 0 if event is None else event + 1]):
        player.play(index, entry)
    sizes = {
        address: (block.size, block.requested)
        for address, block in player.live.items()
        if block.allocated
    }
    return Moment(
        event,
        player.allocator.stats.allocated.current,
        _holders(trace, event, sizes),
        _fragmentation(player.allocator.segments()),
    )


def _without_segments(trace: DeviceTrace, settings: AllocatorSettings) -> Moment:
    levels = allocated_levels(trace, settings)
    highest = max(levels)
    before = levels.index(highest)  # so many events have happened
    event = before - 1 if before else None
    return Moment(
        event, highest, _holders(trace, event, dict(_standing(trace, settings, before))), None
    )


def _standing(
    trace: DeviceTrace, settings: AllocatorSettings, before: int
) -> Iterator[tuple[int, tuple[int, int]]]:
    """The blocks after so many events, by address: bytes, and bytes asked for."""
    now: dict[int, Entry] = {}
    seen: set[int] = set()
    for index, entry in enumerate(trace.entries):
        if entry.action is Action.FREE_REQUESTED:
            older = entry.address not in seen
            if older and index >= before:
                now[entry.address] = entry
            elif index < before:
                now.pop(entry.address, None)
            seen.add(entry.address)
        elif entry.action is Action.ALLOC:
            if index < before:
                now[entry.address] = entry
            seen.add(entry.address)
    for address, entry in now.items():
        yield address, (round_request(entry.size, settings), entry.size)


# -- holders


def _holders(
    trace: DeviceTrace, event: int | None, sizes: dict[int, tuple[int, int]]
) -> tuple[Holder, ...]:
    """The holders; ``sizes``: bytes and requested bytes, by recorded address."""
    so_far = 0 if event is None else event + 1
    born, freed = _births(trace.entries[:so_far]), _deaths(trace.entries, so_far)
    sites = Sites()
    holders = []
    for address, (nbytes, requested) in sizes.items():
        index, death = born.get(address), freed.get(address)
        stack: tuple[Frame, ...] = ()
        if index is not None:
            stack = trace.entries[index].frames
        elif death is None:
            stack = trace.stacks.get(address, ())
        holders.append(Holder(nbytes, requested, sites.of(stack), index, death))
    return tuple(sorted(holders, key=lambda h: (-h.nbytes, -1 if h.born is None else h.born)))


def _births(entries: Iterable[Entry]) -> dict[int, int]:
    """The last allocation at each address that is not freed again."""
    born: dict[int, int] = {}
    for index, entry in enumerate(entries):
        if entry.action is Action.ALLOC:
            born[entry.address] = index
        elif entry.action is Action.FREE_REQUESTED:
            born.pop(entry.address, None)
    return born


def _deaths(entries: tuple[Entry, ...], start: int) -> dict[int, int]:
    """The first release of each address, that no allocation after the start comes before."""
    freed: dict[int, int] = {}
    taken: set[int] = set()
    for index in range(start, len(entries)):
        entry = entries[index]
        if entry.action is Action.FREE_REQUESTED and entry.address not in taken:
            freed.setdefault(entry.address, index)
        if entry.action is Action.ALLOC:
            taken.add(entry.address)
    return freed


def _call_sites(holders: Iterable[Holder]) -> tuple[CallSite, ...]:
    sums: dict[tuple[Site, bool], list[int]] = {}
    for holder in holders:
        older = holder.born is None and holder.site == UNKNOWN
        row = sums.setdefault((holder.site, older), [0, 0])
        row[0] += holder.nbytes
        row[1] += 1
    rows = [CallSite(size, count, where, older) for (where, older), (size, count) in sums.items()]
    return tuple(sorted(rows, key=lambda row: -row.nbytes))


# -- fragmentation


def _fragmentation(segments: tuple[Segment, ...]) -> Fragmentation:
    return Fragmentation(
        small=_room([s for s in segments if s.small]),
        large=_room([s for s in segments if not s.small]),
        total=_room(segments),
    )


def _room(segments: Iterable[Segment]) -> Room:
    sums = dict.fromkeys(State, 0)
    requested = free_segments = largest = reserved = 0
    for segment in segments:
        reserved += segment.size
        for piece in segment.pieces:
            sums[piece.state] += piece.size
            if piece.state is State.ALLOCATED:
                requested += piece.requested
            elif piece.state is State.FREE:
                largest = max(largest, piece.size)
        if all(piece.state is State.FREE for piece in segment.pieces):
            free_segments += segment.size
    return Room(
        reserved=reserved,
        allocated=sums[State.ALLOCATED],
        requested=requested,
        pending=sums[State.PENDING],
        free_in_split=sums[State.FREE] - free_segments,
        free_segments=free_segments,
        largest_free=largest,
    )
