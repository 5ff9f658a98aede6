"""Whatever a program does, the allocator's books balance."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem.allocator import (
    Block,
    CachingAllocator,
    OutOfMemoryError,
    Piece,
    Segment,
    State,
    parse_alloc_conf,
)

MIB = 1 << 20
CAPACITY = 400 * MIB

CONFS = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:30",
    "large_segment_size_mb:12,max_non_split_rounding_mb:14,max_split_size_mb:16",
    "roundup_power2_divisions:[2:2,32:4,>:1]",
    "garbage_collection_threshold:0.4,per_process_memory_fraction:0.9",
    "expandable_segments:True,garbage_collection_threshold:0.4,per_process_memory_fraction:0.9",
]

SIZES = st.one_of(
    st.integers(1, 4096),
    st.integers(1, 3 * MIB),
    st.integers(MIB, 60 * MIB),
    st.sampled_from([512, MIB, MIB + 1, 10 * MIB, 20 * MIB, 40_960_000]),
)
ACTIONS = st.lists(
    st.tuples(st.sampled_from("mmmmmfffrse"), SIZES, st.integers(0, 2), st.integers(0, 1 << 30)),
    max_size=80,
)


@given(st.sampled_from(CONFS), ACTIONS)
@settings(max_examples=150)
def test_blocks_never_overlap_and_every_counter_adds_up(
    conf: str, actions: list[tuple[str, int, int, int]]
) -> None:
    allocator = CachingAllocator(parse_alloc_conf(conf), capacity=CAPACITY)
    live: list[Block] = []
    for action, nbytes, stream, pick in actions:
        _act(allocator, live, action, nbytes, stream, pick)
        _check(allocator, live)
    for block in live:
        allocator.free(block)
    allocator.empty_cache()
    assert allocator.segments() == ()
    assert allocator.stats.reserved.current == allocator.stats.active.current == 0


def _act(
    allocator: CachingAllocator, live: list[Block], action: str, nbytes: int, stream: int, pick: int
) -> None:
    if action == "m":
        reuses = allocator.would_reuse(nbytes, stream)
        reserved = allocator.stats.reserved.current
        try:
            block = allocator.malloc(nbytes, stream)
        except OutOfMemoryError:
            assert not reuses
            return
        assert block.size >= nbytes
        assert not reuses or allocator.stats.reserved.current == reserved
        live.append(block)
    elif action == "s":
        allocator.synchronize()
    elif action == "e":
        allocator.empty_cache()
    elif live and action == "r":
        allocator.record_stream(live[pick % len(live)], stream)
    elif live:
        allocator.free(live.pop(pick % len(live)))


def _check(allocator: CachingAllocator, live: list[Block]) -> None:
    segments, stats = allocator.segments(), allocator.stats
    for before, after in pairwise(segments):
        assert before.address + before.size <= after.address
    for segment in segments:
        _check_segment(segment)
    pieces = [piece for segment in segments for piece in segment.pieces]
    handed_out = [piece for piece in pieces if piece.state is State.ALLOCATED]
    active = [piece for piece in pieces if piece.state is not State.FREE]
    assert {(p.address, p.size) for p in handed_out} == {(b.address, b.size) for b in live}
    assert stats.reserved.current == _total(pieces) <= CAPACITY
    assert stats.allocated.current == _total(handed_out)
    assert stats.active.current == _total(active)
    assert stats.requested.current == sum(piece.requested for piece in active)
    assert stats.inactive_split.current == sum(_free_of_split(s) for s in segments)
    for name in ("reserved", "allocated", "active", "requested", "inactive_split"):
        stat = getattr(stats, name)
        assert 0 <= stat.current <= stat.peak


def _total(pieces: list[Piece]) -> int:
    return sum(piece.size for piece in pieces)


def _check_segment(segment: Segment) -> None:
    """Its pieces follow one another and fill it, and no two free ones touch."""
    at = segment.address
    for piece in segment.pieces:
        assert piece.address == at
        assert piece.size > 0
        at += piece.size
    assert at == segment.address + segment.size
    for before, after in pairwise(segment.pieces):
        assert {before.state, after.state} != {State.FREE}


def _free_of_split(segment: Segment) -> int:
    if segment.expandable or len(segment.pieces) == 1:
        return 0
    return _total([piece for piece in segment.pieces if piece.state is State.FREE])


def test_best_fit_is_that_of_a_search_through_all_free_blocks() -> None:
    rng = random.Random(0)
    allocator, live = CachingAllocator(), list[Block]()
    for _ in range(600):
        nbytes, stream = rng.choice([700, 90_000, 3 * MIB, 12 * MIB, 50 * MIB]), rng.randrange(2)
        expected = _smallest(allocator, nbytes, stream)
        block = allocator.malloc(nbytes, stream)
        assert expected in (None, block.address)
        live.append(block)
        if len(live) > 40:
            allocator.free(live.pop(rng.randrange(len(live))))


def _smallest(allocator: CachingAllocator, nbytes: int, stream: int) -> int | None:
    size = -(-nbytes // 512) * 512
    fitting = [
        (piece.size, piece.address)
        for segment in allocator.segments()
        if segment.stream == stream and segment.small == (size <= MIB)
        for piece in segment.pieces
        if piece.state is State.FREE and piece.size >= size
    ]
    return min(fitting)[1] if fitting else None
