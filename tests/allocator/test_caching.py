"""The rules of CUDACachingAllocator, one by one, with the arithmetic beside the numbers."""

from __future__ import annotations

import pytest

from graphmem.allocator import (
    AllocatorSettings,
    CachingAllocator,
    EmptyCache,
    Free,
    Malloc,
    OutOfMemoryError,
    RecordStream,
    State,
    Synchronize,
    parse_alloc_conf,
    replay,
)
from graphmem.allocator.sizes import next_division, round_request, segment_bytes
from graphmem.errors import InvariantError

KIB, MIB = 1 << 10, 1 << 20


def _allocator(conf: str = "", capacity: int | None = None) -> CachingAllocator:
    return CachingAllocator(parse_alloc_conf(conf), capacity=capacity)


# -- sizes


@pytest.mark.parametrize(
    ("nbytes", "size"),
    [(1, 512), (511, 512), (512, 512), (513, 1024), (40_960_000, 40_960_000), (37_633, 37_888)],
)
def test_a_request_is_rounded_to_512_bytes(nbytes: int, size: int) -> None:
    assert round_request(nbytes, AllocatorSettings()) == size


@pytest.mark.parametrize(
    ("nbytes", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),  # the next multiple of 2 MiB
        (40_960_000, 41_943_040),  # 39.06 MiB: 40 MiB
    ],
)
def test_the_segment_of_a_request(nbytes: int, segment: int) -> None:
    assert segment_bytes(nbytes, AllocatorSettings()) == segment


def test_power_of_two_divisions() -> None:
    assert next_division(1200, 4) == 1280  # 1024 + 1 * 1024/4
    assert next_division(1024, 4) == 1024
    assert next_division(1793, 4) == 2048
    settings = parse_alloc_conf("roundup_power2_divisions:4")
    assert round_request(2048, settings) == 2048  # not above 512 * 4: multiples of 512
    assert round_request(2049, settings) == 2560  # 2048 + 2048/4
    assert round_request(5 * MIB + 1, settings) == 6 * MIB  # 4, 5, 6, 7 MiB


def test_divisions_go_by_the_interval_of_the_size() -> None:
    settings = parse_alloc_conf("roundup_power2_divisions:[2:2,>:0]")
    assert round_request(3 * MIB + 1, settings) == 4 * MIB  # 2 to 4 MiB in 2 parts
    assert round_request(5 * MIB + 1, settings) == 5 * MIB + 512  # 4 MiB on: none


# -- pools, best fit, splitting


def test_small_requests_share_a_segment_of_2_mib() -> None:
    allocator = _allocator()
    first, second = allocator.malloc(100), allocator.malloc(1000)
    assert second.address == first.address + 512
    assert allocator.stats.requested.current == 1100
    assert allocator.stats.allocated.current == 1536  # 512 + 1024
    assert allocator.stats.reserved.current == 2 * MIB
    assert allocator.stats.inactive_split.current == 2 * MIB - 1536


def test_small_and_large_requests_do_not_mix() -> None:
    allocator = _allocator()
    allocator.free(allocator.malloc(20 * MIB))
    allocator.malloc(MIB)
    assert allocator.stats.reserved.current == 22 * MIB


def test_a_large_block_keeps_up_to_1_mib_of_slack() -> None:
    allocator = _allocator()
    block = allocator.malloc(40_960_000)
    assert block.size == 41_943_040  # the rest of 983,040 is not above 1 MiB
    assert allocator.stats.allocated.current == 41_943_040


def test_a_large_block_is_split_above_1_mib() -> None:
    allocator = _allocator()
    assert allocator.malloc(19 * MIB).size == 20 * MIB  # the rest is 1 MiB exactly
    allocator = _allocator()
    whole = allocator.malloc(20 * MIB)
    allocator.free(whole)
    assert allocator.malloc(19 * MIB - 512).size == 19 * MIB - 512
    assert allocator.stats.inactive_split.current == MIB + 512


def test_the_smallest_block_that_fits_is_taken() -> None:
    allocator = _allocator()
    blocks = [allocator.malloc(size * MIB) for size in (60, 20, 40)]
    addresses = [block.address for block in blocks]
    for block in blocks:
        allocator.free(block)
    assert allocator.malloc(30 * MIB).address == addresses[2]
    assert allocator.malloc(50 * MIB).address == addresses[0]


def test_of_equal_blocks_the_lowest_address_is_taken() -> None:
    allocator = _allocator()
    blocks = [allocator.malloc(20 * MIB) for _ in range(3)]
    lowest = blocks[0].address
    for block in reversed(blocks):
        allocator.free(block)
    assert allocator.malloc(20 * MIB).address == lowest


def test_a_freed_block_merges_with_both_neighbours() -> None:
    allocator = _allocator()
    first, second, third = (allocator.malloc(4 * MIB) for _ in range(3))
    allocator.free(first)
    allocator.free(third)  # merges with the 8 MiB that are left of the 20
    assert allocator.stats.inactive_split.current == 16 * MIB
    allocator.free(second)
    (segment,) = allocator.segments()
    assert [(piece.size, piece.state) for piece in segment.pieces] == [(20 * MIB, State.FREE)]
    assert allocator.stats.inactive_split.current == 0


def test_a_stream_does_not_reuse_what_another_freed() -> None:
    allocator = _allocator()
    allocator.free(allocator.malloc(20 * MIB, stream=1))
    allocator.malloc(20 * MIB, stream=2)
    assert allocator.stats.reserved.current == 40 * MIB
    allocator.malloc(20 * MIB, stream=1)
    assert allocator.stats.reserved.current == 40 * MIB


def test_would_reuse_tells_without_doing() -> None:
    allocator = _allocator()
    assert not allocator.would_reuse(MIB)
    allocator.free(allocator.malloc(MIB))
    assert allocator.would_reuse(MIB)
    assert not allocator.would_reuse(MIB, stream=1)


# -- record_stream


def test_a_recorded_stream_keeps_a_block_active_until_its_event() -> None:
    allocator = _allocator()
    block = allocator.malloc(20 * MIB)
    allocator.record_stream(block, 0)  # its own stream: nothing
    allocator.record_stream(block, 7)
    allocator.free(block)
    assert allocator.stats.allocated.current == 0
    assert allocator.stats.active.current == 20 * MIB
    assert allocator.segments()[0].pieces[0].state is State.PENDING
    assert not allocator.would_reuse(20 * MIB)
    allocator.complete(block)
    assert allocator.stats.active.current == 0
    assert allocator.would_reuse(20 * MIB)


def test_a_waiting_neighbour_is_not_merged_with() -> None:
    allocator = _allocator()
    first, second = allocator.malloc(512), allocator.malloc(512)
    allocator.free(first, pending=True)
    allocator.free(second)
    assert [piece.size for piece in allocator.segments()[0].pieces] == [512, 2 * MIB - 512]


def test_wrong_frees_are_our_bug() -> None:
    allocator = _allocator()
    block = allocator.malloc(1)
    with pytest.raises(InvariantError, match="waits for no event"):
        allocator.complete(block)
    allocator.free(block)
    with pytest.raises(InvariantError, match="freed twice"):
        allocator.free(block)
    with pytest.raises(InvariantError, match="takes no block"):
        allocator.malloc(0)


# -- the capacity


def test_wholly_free_segments_are_given_back_at_the_capacity() -> None:
    allocator = _allocator(capacity=100 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    allocator.malloc(80 * MIB)  # 60 + 80 > 100: the 60 go first
    assert allocator.stats.reserved.current == 80 * MIB
    assert allocator.stats.reserved.peak == 80 * MIB
    assert allocator.stats.retries == 1


def test_a_segment_in_use_is_not_given_back() -> None:
    allocator = _allocator(capacity=100 * MIB)
    whole = allocator.malloc(60 * MIB)
    allocator.free(whole)
    allocator.malloc(20 * MIB)  # the first third of the segment
    with pytest.raises(OutOfMemoryError) as caught:
        allocator.malloc(80 * MIB)
    error = caught.value
    assert (error.requested_bytes, error.segment_bytes) == (80 * MIB, 80 * MIB)
    assert (error.allocated_bytes, error.reserved_bytes) == (20 * MIB, 60 * MIB)
    assert error.free_bytes == 40 * MIB
    assert allocator.stats.out_of_memory == 1
    assert allocator.malloc(40 * MIB).size == 40 * MIB  # and it goes on


def test_waiting_blocks_are_synchronized_before_memory_runs_out() -> None:
    allocator = _allocator(capacity=100 * MIB)
    allocator.free(allocator.malloc(60 * MIB), pending=True)
    allocator.malloc(80 * MIB)
    assert allocator.stats.active.current == 80 * MIB


def test_empty_cache_gives_back_what_is_wholly_free() -> None:
    allocator = _allocator()
    kept = allocator.malloc(4 * MIB)
    for size in (4 * MIB, 30 * MIB, 1000):
        allocator.free(allocator.malloc(size))
    allocator.empty_cache()
    assert allocator.stats.reserved.current == 20 * MIB
    assert allocator.stats.segments.current == 1
    allocator.free(kept)
    allocator.empty_cache()
    assert allocator.stats.reserved.current == 0
    assert allocator.segments() == ()


def test_a_memory_fraction_bounds_what_is_reserved() -> None:
    allocator = _allocator("per_process_memory_fraction:0.5", capacity=100 * MIB)
    allocator.malloc(40 * MIB)
    with pytest.raises(OutOfMemoryError):
        allocator.malloc(11 * MIB)  # 40 + 12 > 50


# -- max_split_size, garbage collection


def test_an_oversize_block_is_not_split_and_serves_no_smaller_request() -> None:
    allocator = _allocator("max_split_size_mb:64")
    whole = allocator.malloc(100 * MIB)
    allocator.free(whole)
    allocator.malloc(30 * MIB)
    assert allocator.stats.reserved.current == 130 * MIB
    assert allocator.malloc(90 * MIB) is whole  # whole, with 10 MiB of slack
    assert allocator.stats.allocated.current == 130 * MIB


def test_an_oversize_request_takes_no_block_that_is_too_large() -> None:
    allocator = _allocator("max_split_size_mb:64")
    allocator.free(allocator.malloc(100 * MIB))
    allocator.malloc(80 * MIB)  # 100 >= 80 + 20
    assert allocator.stats.reserved.current == 180 * MIB
    allocator = _allocator("max_split_size_mb:64,max_non_split_rounding_mb:21")
    allocator.free(allocator.malloc(100 * MIB))
    allocator.malloc(80 * MIB)  # 100 < 80 + 21
    assert allocator.stats.reserved.current == 100 * MIB


def test_oversize_blocks_go_back_first_and_only_as_many_as_needed() -> None:
    allocator = _allocator("max_split_size_mb:64", capacity=300 * MIB)
    blocks = [allocator.malloc(size * MIB) for size in (70, 80, 100, 40)]
    for block in blocks:
        allocator.free(block)
    allocator.malloc(200 * MIB)  # 100 and 80, then 70 to reach 200; the 40 stay
    assert allocator.stats.reserved.current == 240 * MIB
    assert allocator.stats.retries == 0


def test_the_large_segment_size_can_be_set() -> None:
    allocator = _allocator("large_segment_size_mb:32")
    allocator.malloc(2 * MIB)
    assert allocator.stats.reserved.current == 32 * MIB


def test_garbage_collection_frees_blocks_older_than_the_mean() -> None:
    conf = "garbage_collection_threshold:0.7,per_process_memory_fraction:1.0"
    allocator = _allocator(conf, capacity=200 * MIB)
    old, new, _ = (allocator.malloc(size * MIB) for size in (40, 60, 20))
    allocator.free(old)
    allocator.malloc(50 * MIB)  # a look-up passes: the 40 MiB are older than the 60
    allocator.free(new)
    allocator.malloc(70 * MIB)  # 170 > 140: collects 30 or more, the 40
    assert allocator.stats.reserved.current == 200 * MIB  # 170 - 40 + 70
    assert allocator.stats.retries == 0


def test_garbage_is_not_collected_without_a_fraction() -> None:
    allocator = _allocator("garbage_collection_threshold:0.1", capacity=200 * MIB)
    allocator.free(allocator.malloc(40 * MIB))
    allocator.malloc(60 * MIB)
    assert allocator.stats.reserved.current == 100 * MIB


# -- expandable segments

_EXPANDABLE = "expandable_segments:True"


def test_an_expandable_segment_grows_by_pages_of_20_mib() -> None:
    allocator = _allocator(_EXPANDABLE)
    first, second = allocator.malloc(15 * MIB), allocator.malloc(15 * MIB)
    assert second.address == first.address + 15 * MIB
    assert allocator.stats.reserved.current == 40 * MIB  # 30 MiB in pages of 20
    (segment,) = allocator.segments()
    assert segment.expandable
    assert [piece.size for piece in segment.pieces] == [15 * MIB, 15 * MIB, 10 * MIB]
    assert allocator.stats.inactive_split.current == 0


def test_the_small_pool_grows_by_pages_of_2_mib() -> None:
    allocator = _allocator(_EXPANDABLE)
    allocator.malloc(MIB)
    allocator.malloc(MIB)
    allocator.malloc(512)
    assert allocator.stats.reserved.current == 4 * MIB


def test_an_expandable_block_has_no_slack() -> None:
    assert _allocator(_EXPANDABLE).malloc(40_960_000).size == 40_960_000


def test_expandable_segments_give_whole_free_pages_back() -> None:
    allocator = _allocator(_EXPANDABLE)
    first, second, third = (allocator.malloc(30 * MIB) for _ in range(3))
    allocator.free(second)  # 30 to 60 MiB of 100: the page from 40 to 60 is whole
    allocator.empty_cache()
    assert allocator.stats.reserved.current == 80 * MIB
    assert [segment.size for segment in allocator.segments()] == [40 * MIB, 40 * MIB]
    allocator.malloc(30 * MIB)  # fills the gap again: 10 free, 20 mapped
    assert allocator.stats.reserved.current == 100 * MIB
    for block in (first, third):
        allocator.free(block)
    allocator.empty_cache()
    assert allocator.stats.reserved.current == 40 * MIB  # 20 to 60 MiB hold the block


def test_an_expandable_segment_of_which_nothing_is_mapped_is_forgotten() -> None:
    allocator = _allocator(_EXPANDABLE)
    allocator.free(allocator.malloc(30 * MIB))
    allocator.empty_cache()
    assert allocator.stats.reserved.current == 0
    assert allocator.segments() == ()


def test_expandable_segments_run_out_of_memory_by_pages() -> None:
    allocator = _allocator(_EXPANDABLE, capacity=50 * MIB)
    allocator.malloc(30 * MIB)
    with pytest.raises(OutOfMemoryError):
        allocator.malloc(15 * MIB)  # 45 MiB are 3 pages: 60
    allocator.malloc(10 * MIB)
    assert allocator.stats.reserved.current == 40 * MIB


def test_the_best_fit_counts_what_a_block_can_grow_to() -> None:
    allocator = _allocator(_EXPANDABLE)
    first, _, last = (allocator.malloc(size * MIB) for size in (30, 2, 8))
    start = first.address
    allocator.free(first)  # 30 MiB between blocks
    allocator.free(last)  # 8 MiB, and the addresses after it
    assert allocator.malloc(4 * MIB).address == start


# -- events, and starting from segments


def test_events_are_replayed() -> None:
    allocator = _allocator()
    live = replay(
        allocator,
        [
            Malloc("a", 1000),
            Malloc("empty", 0),
            Malloc("b", 20 * MIB, stream=1),
            Free("empty"),
            RecordStream("b", 0),
            Free("b"),
            Synchronize(),
            EmptyCache(),
        ],
    )
    assert list(live) == ["a"]
    assert allocator.stats.allocated.current == 1024
    assert allocator.stats.allocated.peak == 20 * MIB + 1024
    assert allocator.stats.reserved.current == 2 * MIB


def test_keys_of_events_are_checked() -> None:
    with pytest.raises(InvariantError, match="'a' is made twice"):
        replay(_allocator(), [Malloc("a", 1), Malloc("a", 1)])
    with pytest.raises(InvariantError, match="'a' is used before"):
        replay(_allocator(), [Free("a")])


@pytest.mark.parametrize("conf", ["", _EXPANDABLE])
def test_an_allocator_starts_from_the_segments_of_another(conf: str) -> None:
    allocator = _allocator(conf)
    blocks = [allocator.malloc(size) for size in (700, 3 * MIB, 30 * MIB, 5 * MIB, 40_960_000)]
    allocator.free(blocks[1])
    allocator.free(blocks[3], pending=True)
    again = _allocator(conf)
    again.restore(allocator.segments())
    assert again.segments() == allocator.segments()
    for name in ("allocated", "active", "requested", "reserved", "inactive_split", "segments"):
        assert getattr(again.stats, name).current == getattr(allocator.stats, name).current
    block = again.at(blocks[0].address)
    assert block is not None
    assert block.requested == 700
    with pytest.raises(InvariantError, match="only a fresh allocator"):
        again.restore(())


def test_peaks_start_again_from_what_is_held() -> None:
    allocator = _allocator()
    allocator.free(allocator.malloc(20 * MIB))
    allocator.stats.reset_peaks()
    assert allocator.stats.allocated.peak == 0
    assert allocator.stats.reserved.peak == 20 * MIB
