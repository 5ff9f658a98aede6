"""A recorded trace, run through the allocator's model and compared decision by decision.

Definitions.

(1) The *decision* of an allocation is what the driver is asked for it: nothing (a cached
    block is reused), or which segments, of which sizes, are taken and given back.
(2) Its *address* is that of the block.
(3) *Recorded* bytes come from the trace alone (``peaks``), *replayed* ones from the model.
(4) The *final state* is that of every segment and block after the last event.
(5) The model is never corrected: after a difference it goes on with its own blocks.

Not covered: a trace without any segment, where there is nothing to compare with.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum, unique

from graphmem.allocator import AllocatorSettings, Block, CachingAllocator, OutOfMemoryError, Segment
from graphmem.errors import ModelLoadError
from graphmem.snapshots.peaks import recorded_allocated, recorded_reserved
from graphmem.snapshots.recorded import RecordedDriver
from graphmem.snapshots.start import starting_segments
from graphmem.snapshots.trace import Action, DeviceTrace, Entry

_DRIVER = (
    Action.SEGMENT_ALLOC,
    Action.SEGMENT_FREE,
    Action.SEGMENT_MAP,
    Action.SEGMENT_UNMAP,
)


@unique
class Kind(StrEnum):
    """What differs."""

    DECISION = "decision"
    ADDRESS = "address"
    OUT_OF_MEMORY = "out of memory"
    FINAL_STATE = "final state"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Where the model differs: the event, what was asked for, and how."""

    event: int
    kind: Kind
    size: int
    difference: str


@dataclass(frozen=True, slots=True)
class DeviceReplay:
    """A replay beside the record. Peaks in bytes; ``start_bytes`` stood there before.

    ``peak_event`` is the first event with the most allocated bytes; None: the start.
    """

    device: int
    events: int
    allocations: int
    start_bytes: int
    recorded_allocated_bytes: int
    recorded_reserved_bytes: int
    replayed_allocated_bytes: int
    replayed_reserved_bytes: int
    peak_event: int | None
    mismatches: tuple[Mismatch, ...]

    def count(self, kind: Kind) -> int:
        """How many mismatches there are of a kind."""
        return sum(mismatch.kind is kind for mismatch in self.mismatches)


def has_segments(trace: DeviceTrace) -> bool:
    """Whether the trace tells of segments: what a replay is compared with."""
    return bool(trace.segments) or any(entry.action in _DRIVER for entry in trace.entries)


def replay_device(trace: DeviceTrace, settings: AllocatorSettings) -> DeviceReplay:
    """Run a device's trace through the model, from the state that it started in.

    Raises:
        ModelLoadError: if the trace has no segments, or contradicts itself.
    """
    if trace.entries and not has_segments(trace):
        raise ModelLoadError(f"device {trace.device}: the trace has no segments to compare with")
    start = starting_segments(trace, settings)
    player = Player(settings, start)
    allocated = player.allocator.stats.allocated
    highest, peak_event = allocated.peak, None
    for index, entry in enumerate(trace.entries):
        player.play(index, entry)
        if allocated.current > highest:
            highest, peak_event = allocated.current, index
    player.finish(len(trace.entries), trace.segments)
    stats = player.allocator.stats
    return DeviceReplay(
        device=trace.device,
        events=len(trace.entries),
        allocations=sum(entry.action is Action.ALLOC for entry in trace.entries),
        start_bytes=sum(segment.size for segment in start),
        recorded_allocated_bytes=recorded_allocated(trace, settings),
        recorded_reserved_bytes=recorded_reserved(trace, start),
        replayed_allocated_bytes=stats.allocated.peak,
        replayed_reserved_bytes=stats.reserved.peak,
        peak_event=peak_event,
        mismatches=tuple(player.mismatches),
    )


class Player:
    """The model beside the record. ``live``: the blocks in use, by their recorded address."""

    def __init__(self, settings: AllocatorSettings, start: tuple[Segment, ...]) -> None:
        self.driver = RecordedDriver(start)
        self.allocator = CachingAllocator(settings, driver=self.driver)
        self.allocator.restore(start)
        self.mismatches: list[Mismatch] = []
        self._asked: list[Entry] = []
        self.live: dict[int, Block] = {}
        for segment in start:
            for piece in segment.pieces:
                block = self.allocator.at(piece.address)
                if block is not None:
                    self.live[piece.address] = block

    def play(self, index: int, entry: Entry) -> None:
        """One event."""
        match entry.action:
            case Action.ALLOC | Action.OOM:
                self._request(index, entry)
            case Action.FREE_REQUESTED:
                self._empty_cache(index)
                self.allocator.free(self._known(index, entry), pending=True)
            case Action.FREE_COMPLETED:
                self.allocator.complete(self._known(index, entry))
                del self.live[entry.address]
            case _:
                self._asked.append(entry)

    def finish(self, index: int, final: tuple[Segment, ...]) -> None:
        """Compare what is there afterwards."""
        self._empty_cache(index)
        replayed = {segment.address: segment for segment in self.allocator.segments()}
        recorded = {segment.address: segment for segment in final}
        for address in sorted(replayed.keys() | recorded.keys()):
            if replayed.get(address) != recorded.get(address):
                size = (recorded.get(address) or replayed[address]).size
                self._differs(index, Kind.FINAL_STATE, size, f"the segment at {address:#x}")

    def _request(self, index: int, entry: Entry) -> None:
        asked, self._asked = self._asked, []
        self.driver.expect(asked, refuses=entry.action is Action.OOM)
        if self.driver.frees_next and self.allocator.would_reuse(entry.size, entry.stream):
            self.allocator.empty_cache()  # nothing else gives back where there is a free block
        block = self._malloc(index, entry)
        for difference in self.driver.settle():
            self._differs(index, Kind.DECISION, entry.size, difference)
        if block is None:
            return
        self.live[entry.address] = block
        if block.address != entry.address:
            difference = f"{entry.address:#x} recorded, {block.address:#x} replayed"
            self._differs(index, Kind.ADDRESS, entry.size, difference)

    def _malloc(self, index: int, entry: Entry) -> Block | None:
        """The model's block for a recorded request; None if it ran out of memory, as recorded."""
        failed = entry.action is Action.OOM
        try:
            block = self.allocator.malloc(entry.size, entry.stream)
        except OutOfMemoryError:
            if not failed:
                raise ModelLoadError(f"event {index}: the replay ran out of memory") from None
            return None
        if failed:
            self._differs(index, Kind.OUT_OF_MEMORY, entry.size, "the replay found memory")
            self.allocator.free(block)
            return None
        return block

    def _empty_cache(self, index: int) -> None:
        """Segments given back outside of a request: ``torch.cuda.empty_cache()``."""
        asked, self._asked = self._asked, []
        if not asked:
            return
        self.driver.expect(asked)
        self.allocator.empty_cache()
        for difference in self.driver.settle():
            self._differs(index, Kind.DECISION, 0, difference)

    def _known(self, index: int, entry: Entry) -> Block:
        """The block that an event frees; it must be one that can be freed."""
        block = self.live.get(entry.address)
        frees = entry.action is Action.FREE_REQUESTED
        if block is None or not (block.allocated if frees else block.pending):
            found = "nothing lives" if block is None else f"{block} is"
            raise ModelLoadError(
                f"event {index}: {entry.action} at {entry.address:#x}, where {found}"
            )
        return block

    def _differs(self, index: int, kind: Kind, size: int, difference: str) -> None:
        self.mismatches.append(Mismatch(index, kind, size, difference))
