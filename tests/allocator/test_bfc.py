"""ONNX Runtime's arena: its rules one by one, and what always holds."""

from __future__ import annotations

import random

import pytest

from graphmem.allocator.bfc import (
    Arena,
    ArenaOutOfMemoryError,
    ArenaSettings,
    Chunk,
    ExtendStrategy,
    rounded,
)
from graphmem.errors import InvariantError

KIB, MIB = 1 << 10, 1 << 20
EXACT = ArenaSettings(strategy=ExtendStrategy.SAME_AS_REQUESTED)


def taken(arena: Arena, nbytes: int) -> Chunk:
    chunk = arena.alloc(nbytes)
    assert chunk is not None
    return chunk


# -- rounding, splitting, joining


@pytest.mark.parametrize(("nbytes", "size"), [(1, 256), (256, 256), (257, 512), (4000, 4096)])
def test_requests_are_rounded_up_to_256_bytes(nbytes: int, size: int) -> None:
    assert rounded(nbytes) == size
    arena = Arena()
    assert taken(arena, nbytes).size == size
    assert (arena.requested, arena.in_use) == (nbytes, size)


def test_a_request_of_no_bytes_takes_nothing() -> None:
    arena = Arena()
    assert arena.alloc(0) is None
    assert arena.reserve(0) is None
    arena.free(None)
    assert arena.held == 0


def test_a_chunk_of_less_than_twice_the_request_is_handed_out_whole() -> None:
    assert taken(Arena(), 513 * KIB).size == MIB


def test_a_chunk_of_twice_the_request_is_split() -> None:
    arena = Arena()
    assert taken(arena, 512 * KIB).size == 512 * KIB
    assert taken(arena, 512 * KIB).size == 512 * KIB
    assert arena.held == MIB


def test_a_rest_of_max_dead_bytes_is_split_off() -> None:
    arena = Arena(ArenaSettings(initial_chunk=200 * MIB))
    assert taken(arena, 72 * MIB - 256).size == 72 * MIB - 256  # the rest is over 128 MiB


def test_the_smallest_chunk_that_is_large_enough_is_taken() -> None:
    arena = Arena(EXACT)
    chunks = [taken(arena, size * KIB) for size in (64, 40, 48)]
    for chunk in chunks:
        arena.free(chunk)
    assert taken(arena, 41 * KIB).size == 48 * KIB


def test_free_neighbours_join() -> None:
    arena = Arena()
    chunks = [taken(arena, 256 * KIB) for _ in range(4)]
    for at in (0, 2, 1, 3):
        arena.free(chunks[at])
    assert taken(arena, MIB).size == MIB
    assert arena.held == MIB


def test_regions_do_not_join() -> None:
    arena = Arena(EXACT)
    for chunk in [taken(arena, MIB), taken(arena, MIB)]:
        arena.free(chunk)
    taken(arena, 2 * MIB)
    assert arena.held == 4 * MIB


def test_a_chunk_is_freed_once() -> None:
    arena = Arena()
    chunk = taken(arena, 1)
    arena.free(chunk)
    with pytest.raises(InvariantError, match="twice"):
        arena.free(chunk)


# -- growing


def test_regions_double_until_the_request_fits() -> None:
    arena = Arena()
    taken(arena, 3 * MIB)  # 1 -> 2 -> 4 MiB
    assert arena.held == 4 * MIB
    taken(arena, 3 * MIB)  # fits into 4 MiB at once; the next region will be of 8
    assert arena.held == 8 * MIB
    taken(arena, 3 * MIB)
    assert arena.held == 16 * MIB


def test_an_arena_may_grow_by_what_is_requested() -> None:
    arena = Arena(EXACT)
    taken(arena, 3 * MIB + 1)
    assert arena.held == 3 * MIB + 256


def test_reservations_are_exact_and_given_back() -> None:
    arena = Arena()
    chunk = arena.reserve(100)
    assert (arena.held, arena.in_use, arena.requested) == (100, 100, 100)
    arena.free(chunk)
    assert (arena.held, arena.in_use, arena.requested, arena.peak) == (0, 0, 0, 100)


def test_a_limit_cuts_the_last_region_and_then_ends_it() -> None:
    arena = Arena(ArenaSettings(limit=5 * MIB))
    taken(arena, 3 * MIB)
    assert arena.held == 4 * MIB
    taken(arena, MIB)  # the next would be of 4 MiB
    assert arena.held == 5 * MIB
    with pytest.raises(ArenaOutOfMemoryError) as error:
        taken(arena, 2 * MIB)
    assert error.value.nbytes == 2 * MIB


# -- what always holds


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("strategy", ExtendStrategy)
def test_chunks_never_overlap_and_bytes_are_conserved(seed: int, strategy: ExtendStrategy) -> None:
    draw = random.Random(seed)
    arena = Arena(ArenaSettings(strategy=strategy))
    alive: list[Chunk] = []
    for _ in range(400):
        if alive and draw.random() < 0.48:
            arena.free(alive.pop(draw.randrange(len(alive))))
        else:
            alive.append(taken(arena, int(2 ** draw.uniform(0, 22))))
        _check(arena, alive)
    for chunk in alive:
        arena.free(chunk)
    _check(arena, [])
    assert all(region.following is None for region in arena.regions)  # joined to wholes


def _check(arena: Arena, alive: list[Chunk]) -> None:
    seen = []
    for region in arena.regions:
        at = region.address
        chunk: Chunk | None = region
        before: Chunk | None = None
        while chunk is not None:
            assert chunk.address == at
            assert chunk.preceding is before
            neighbours = before is not None and before.requested is None
            assert not (neighbours and chunk.requested is None), "free neighbours"
            at += chunk.size
            seen.append(chunk)
            before, chunk = chunk, chunk.following
    used = [chunk for chunk in seen if chunk.requested is not None]
    assert {id(c) for c in used} == {id(c) for c in alive}
    assert sum(chunk.size for chunk in seen) == arena.held
    assert sum(chunk.size for chunk in used) == arena.in_use <= arena.peak
    assert sum(chunk.requested or 0 for chunk in used) == arena.requested


def test_near_the_capacity_of_the_device_a_region_shrinks_by_tenths() -> None:
    arena = Arena(ArenaSettings(capacity=8 * MIB))
    arena.alloc(5 * MIB)  # takes 8 MiB, as without a limit
    assert arena.held == 8 * MIB
    arena = Arena(ArenaSettings(capacity=7 * MIB))
    arena.alloc(5 * MIB)  # 8 MiB, 7.2 MiB, then 6.48 MiB, in 256 B: 26542.8 -> 26543
    assert arena.held == 26543 * 256


def test_a_device_without_room_is_out_of_memory() -> None:
    arena = Arena(ArenaSettings(capacity=5 * MIB))
    with pytest.raises(ArenaOutOfMemoryError) as caught:
        arena.alloc(5 * MIB)  # 8 -> 7.2 -> 6.48 -> 5.83 -> 5.25 -> 4.72 MiB: less than 5
    assert (caught.value.nbytes, caught.value.run) == (5 * MIB, None)
    with pytest.raises(ArenaOutOfMemoryError):
        arena.reserve(6 * MIB)
