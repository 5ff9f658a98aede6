"""What the allocator holds, as plain data: segments and the pieces they are cut into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum, unique

from graphmem.allocator.blocks import AddressRange, Block, Pool
from graphmem.allocator.expandable import reserved_range
from graphmem.allocator.heap import Heap
from graphmem.errors import InvariantError


@unique
class State(StrEnum):
    """What a piece of a segment is used for; the words are those of PyTorch's snapshots."""

    ALLOCATED = "active_allocated"
    PENDING = "active_pending_free"
    FREE = "inactive"


@dataclass(frozen=True, slots=True)
class Piece:
    """A block: where it is, its bytes, and those that were asked for (0 in a free one)."""

    address: int
    size: int
    state: State
    requested: int = 0


@dataclass(frozen=True, slots=True)
class Segment:
    """Memory from the driver: a segment, or one mapped run of an expandable one.

    Its pieces lie one after the other and fill it.
    """

    address: int
    size: int
    stream: int
    small: bool
    expandable: bool
    pieces: tuple[Piece, ...]


def segments_of(heap: Heap) -> tuple[Segment, ...]:
    """All segments, by address. Source: ``DeviceCachingAllocator::snapshot``."""
    blocks = (*heap.small.free_blocks(), *heap.large.free_blocks(), *heap.active.values())
    heads = (block for block in blocks if block.prev is None or not block.prev.mapped)
    return tuple(sorted(map(_segment, heads), key=lambda segment: segment.address))


def _segment(head: Block) -> Segment:
    pieces = tuple(
        Piece(block.address, block.size, _state(block), 0 if block.is_free else block.requested)
        for block in _run(head)
    )
    size = sum(piece.size for piece in pieces)
    expandable = head.addresses is not None
    return Segment(head.address, size, head.stream, head.pool.small, expandable, pieces)


def _run(block: Block | None) -> Iterator[Block]:
    while block is not None and block.mapped:
        yield block
        block = block.next


def _state(block: Block) -> State:
    if block.allocated:
        return State.ALLOCATED
    return State.PENDING if block.pending else State.FREE


# -- and back


def restore(heap: Heap, segments: Iterable[Segment]) -> None:
    """Put segments into an empty heap, as they were found in a snapshot.

    The mapped runs of expandable segments of one stream and pool are taken to belong to one
    range of addresses, that starts at the lowest of them.

    Raises:
        InvariantError: where pieces do not fill their segment.
    """
    ranges: dict[tuple[int, bool], list[Segment]] = {}
    for segment in sorted(segments, key=lambda segment: segment.address):
        if segment.expandable:
            ranges.setdefault((segment.stream, segment.small), []).append(segment)
        else:
            _link(_blocks(heap, segment, None))
            heap.stats.segments.add(1)
    for runs in ranges.values():
        _link(_with_gaps(heap, runs))
    for block in heap.small.free_blocks() + heap.large.free_blocks():
        if block.is_split and block.addresses is None:
            heap.stats.inactive_split.add(block.size)


def _blocks(heap: Heap, segment: Segment, addresses: AddressRange | None) -> list[Block]:
    """The blocks of a segment, counted and in their lists, but not yet linked."""
    pool = heap.small if segment.small else heap.large
    blocks, at = [], segment.address
    for piece in segment.pieces:
        if piece.address != at or piece.size <= 0:
            raise InvariantError(f"segment {segment.address:#x}: no piece starts at {at:#x}")
        block = Block(at, piece.size, segment.stream, pool, addresses=addresses)
        _adopt(heap, block, piece)
        blocks.append(block)
        at += piece.size
    if at != segment.address + segment.size:
        raise InvariantError(f"segment {segment.address:#x}: its pieces end at {at:#x}")
    heap.stats.reserved.add(segment.size)
    return blocks


def _adopt(heap: Heap, block: Block, piece: Piece) -> None:
    if piece.state is State.FREE:
        block.pool.add(block)
        return
    block.requested = piece.requested
    block.allocated = piece.state is State.ALLOCATED
    block.pending = not block.allocated
    heap.active[block.address] = block
    heap.stats.active.add(block.size)
    heap.stats.requested.add(block.requested)
    if block.pending:
        heap.pending.append(block)
    else:
        heap.stats.allocated.add(block.size)


def _with_gaps(heap: Heap, runs: list[Segment]) -> list[Block]:
    """The blocks of one expandable segment, with unmapped ones between and after its runs."""
    pool = heap.small if runs[0].small else heap.large
    addresses = reserved_range(heap, pool, runs[0].address)
    blocks, at = [], addresses.address
    for run in runs:
        blocks += _gap(pool, run.stream, addresses, at, run.address)
        blocks += _blocks(heap, run, addresses)
        at = run.address + run.size
    return blocks + _gap(pool, runs[0].stream, addresses, at, addresses.address + addresses.size)


def _gap(pool: Pool, stream: int, addresses: AddressRange, start: int, end: int) -> list[Block]:
    if end <= start:
        return []
    block = Block(start, end - start, stream, pool, addresses=addresses, mapped=False)
    pool.add_unmapped(block)
    return [block]


def _link(blocks: list[Block]) -> None:
    before = None
    for block in blocks:
        block.insert_after(before, None)
        before = block
