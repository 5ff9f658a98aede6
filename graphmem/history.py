"""The run behind a report, in full: what pictures and other tools' formats are made of.

The allocator runs once more over the schedule, with the same settings, and is watched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

from graphmem.allocator import Block, CachingAllocator, Placement, Watch
from graphmem.allocator import Segment as Taken
from graphmem.allocator.driver import SimpleDriver
from graphmem.fits import placement_of
from graphmem.options import Options, Target
from graphmem.report import BREAKDOWN
from graphmem.report.history import (
    Action,
    Event,
    History,
    Memory,
    Moment,
    Piece,
    Segment,
    Tensor,
)
from graphmem.schedule import Category, Schedule, Storage


def history_of(
    schedule: Schedule, options: Options, placement: Placement, *, is_given: bool = False
) -> History:
    """The history of a schedule.

    Args:
        placement: its blocks.
        is_given: they are those of another allocator than the target's.
    """
    categories = _categories(schedule, placement)
    allocated = tuple(map(sum, zip(*categories.values(), strict=True)))
    peak = allocated.index(max(allocated))
    is_on_cuda = not is_given and options.target is Target.CUDA
    numbers = _numbers(placement)
    return History(
        moments=tuple(_moments(schedule, placement, allocated, is_given or is_on_cuda)),
        tensors=tuple(_tensor(schedule.storages[i], placement.block_bytes[i]) for i in numbers),
        peak_index=peak,
        categories=categories,
        memory=_memory(schedule, options, _Watch(peak, numbers)) if is_on_cuda else None,
    )


def _memory(schedule: Schedule, options: Options, watch: _Watch) -> Memory:
    """What a watch sees of the allocator's run."""
    placement_of(schedule, options, watch)
    return watch.memory()


def _numbers(placement: Placement) -> dict[int, int]:
    """The place among the tensors on the device, of each storage that is one."""
    taken = (i for i, nbytes in enumerate(placement.block_bytes) if nbytes)
    return {storage: number for number, storage in enumerate(taken)}


def _moments(
    schedule: Schedule, placement: Placement, allocated: tuple[int, ...], is_placed: bool
) -> Iterator[Moment]:
    for op in schedule.operations:
        yield Moment(
            index=op.index,
            step=op.step,
            phase=str(op.phase),
            op=op.target,
            module=op.module,
            source=op.source,
            allocated_bytes=allocated[op.index],
            reserved_bytes=placement.reserved_bytes[op.index] if is_placed else None,
            scratch_bytes=placement.scratch_bytes[op.index],
        )


def _tensor(storage: Storage, nbytes: int) -> Tensor:
    return Tensor(
        bytes=nbytes,
        requested_bytes=storage.nbytes,
        category=str(storage.category),
        shape=storage.shape,
        dtype=storage.dtype,
        op=storage.op,
        module=storage.module,
        source=storage.source,
        name=storage.name,
        born=storage.born,
        last_use=storage.last_use,
        freed=storage.freed,
        stream=storage.stream,
    )


def _categories(schedule: Schedule, placement: Placement) -> dict[str, tuple[int, ...]]:
    """The bytes of each category of a breakdown while each operation runs."""
    count = len(schedule.operations)
    change = {name: [0] * (count + 1) for name in BREAKDOWN}
    slack = change["allocator_slack"]
    for storage in schedule.storages:
        nbytes = placement.block_bytes[storage.id]
        if nbytes:
            own, over = change[str(storage.category)], nbytes - storage.nbytes
            born, end = max(storage.born, 0), storage.freed
            own[born] += storage.nbytes
            slack[born] += over
            if end is not None:
                own[end + 1] -= storage.nbytes
                slack[end + 1] -= over
    held = {name: list(accumulate(changes[:count])) for name, changes in change.items()}
    for op in schedule.operations:
        requested = op.scratch_bytes
        held[str(Category.WORKSPACES)][op.index] += requested
        held["allocator_slack"][op.index] += placement.scratch_bytes[op.index] - requested
    return {name: tuple(values) for name, values in held.items()}


class _Watch(Watch):
    """Writes down every event, and the segments at the peak."""

    def __init__(self, peak: int, numbers: Mapping[int, int]) -> None:
        self._peak = peak
        self._numbers = numbers
        self._events: list[Event] = []
        self._live: dict[int, int | None] = {}
        self._most = -1
        self._segments: tuple[Segment, ...] = ()
        self._last: tuple[Segment, ...] = ()
        self._now = (0, 0)

    def memory(self) -> Memory:
        return Memory(self._segments, self._last, tuple(self._events))

    def driver(self, capacity: int | None, total: int | None) -> SimpleDriver:
        return _Driver(self, capacity, total)

    def asked(self, operation: int, stream: int) -> None:
        self._now = operation, stream

    def allocated(self, block: Block, operation: int, storage: int | None) -> None:
        self._live[block.address] = self._number(storage)
        self._add(Action.ALLOC, block, operation, storage)

    def freed(self, block: Block, operation: int, storage: int | None) -> None:
        self._add(Action.FREE, block, operation, storage)
        del self._live[block.address]

    def full(self, allocator: CachingAllocator, operation: int) -> None:
        held = allocator.stats.allocated.current
        if operation == self._peak and held > self._most:
            self._most = held
            self._segments = self._taken(allocator)

    def finished(self, allocator: CachingAllocator) -> None:
        self._last = self._taken(allocator)

    def segment(self, action: Action, address: int, nbytes: int) -> None:
        """The driver did something."""
        operation, stream = self._now
        self._events.append(Event(action, address, nbytes, nbytes, stream, operation, None))

    def _add(self, action: Action, block: Block, operation: int, storage: int | None) -> None:
        number = self._number(storage)
        self._events.append(
            Event(
                action, block.address, block.size, block.requested, block.stream, operation, number
            )
        )

    def _number(self, storage: int | None) -> int | None:
        return None if storage is None else self._numbers[storage]

    def _taken(self, allocator: CachingAllocator) -> tuple[Segment, ...]:
        return tuple(map(self._segment, allocator.segments()))

    def _segment(self, taken: Taken) -> Segment:
        pieces = tuple(
            Piece(
                address=piece.address,
                bytes=piece.size,
                requested_bytes=piece.requested,
                is_free=piece.address not in self._live,
                tensor=self._live.get(piece.address),
            )
            for piece in taken.pieces
        )
        return Segment(
            taken.address, taken.size, taken.stream, taken.small, taken.expandable, pieces
        )


class _Driver(SimpleDriver):
    """A driver that tells what it does."""

    def __init__(self, watch: _Watch, capacity: int | None, total: int | None) -> None:
        super().__init__(capacity, total)
        self._watch = watch

    def allocate(self, nbytes: int) -> int | None:
        address = super().allocate(nbytes)
        if address is not None:
            self._watch.segment(Action.SEGMENT_ALLOC, address, nbytes)
        return address

    def free(self, address: int, nbytes: int) -> None:
        super().free(address, nbytes)
        self._watch.segment(Action.SEGMENT_FREE, address, nbytes)

    def map(self, address: int, nbytes: int) -> bool:
        is_mapped = super().map(address, nbytes)
        if is_mapped:
            self._watch.segment(Action.SEGMENT_MAP, address, nbytes)
        return is_mapped

    def unmap(self, address: int, nbytes: int) -> None:
        super().unmap(address, nbytes)
        self._watch.segment(Action.SEGMENT_UNMAP, address, nbytes)
