"""Tests of graphmem.measure.stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.measure.stream import Event, Scratch, Stream, peak_of, scratch_of, without

ALLOCATED = "allocated, not predicted"


def events(*pairs: tuple[int, int]) -> tuple[Event, ...]:
    """Events of ``(nbytes, address)``."""
    return tuple(Event(nbytes, address) for nbytes, address in pairs)


@st.composite
def streams(draw: st.DrawFn) -> tuple[Event, ...]:
    """Valid events: at each of four addresses allocations and releases take turns.

    Address 9 is released though nothing in the stream allocates it.
    """
    held: dict[int, int] = {}
    result = []
    for address in draw(st.lists(st.sampled_from((0, 1, 2, 3, 9)), max_size=12)):
        if address == 9:
            result.append(Event(-1, 9))
        elif address in held:
            result.append(Event(-held.pop(address), address))
        else:
            held[address] = draw(st.integers(1, 4))
            result.append(Event(held[address], address))
    return tuple(result)


def release_of(stream: tuple[Event, ...], index: int) -> int | None:
    """The next event at the same address, by search."""
    later = range(index + 1, len(stream))
    return next((i for i in later if stream[i].address == stream[index].address), None)


# -- peaks


@given(streams(), st.integers(0, 5))
def test_the_peak_is_the_largest_of_all_sums_and_the_first_of_them(
    stream: tuple[Event, ...], start: int
) -> None:
    sums = [start + sum(e.nbytes for e in stream[:n]) for n in range(len(stream) + 1)]
    reached = max(sums.index(max(sums)) - 1, 0)  # sums[n] is reached by event n - 1
    assert peak_of(stream, start) == (max(sums), reached)


def test_a_peak_is_counted_from_what_was_there_before() -> None:
    stream = events((8, 1), (-8, 1), (4, 2), (6, 3))
    assert peak_of(stream, start=0) == (10, 3)  # 8, 0, 4, 10
    assert peak_of(stream, start=100) == (110, 3)  # 108, 100, 104, 110


def test_a_stream_that_only_releases_has_its_peak_at_the_start() -> None:
    assert peak_of(events((-4, 9), (-4, 9)), start=8) == (8, 0)
    assert peak_of((), start=3) == (3, 0)


# -- deaths


@given(streams())
def test_an_allocation_dies_when_its_address_is_released(stream: tuple[Event, ...]) -> None:
    expected = []
    for index, event in enumerate(stream):
        end = release_of(stream, index)
        expected.append(0 if event.nbytes <= 0 else len(stream) if end is None else end)
    assert Stream(stream, ()).deaths == tuple(expected)


def test_an_address_is_used_again_after_its_release() -> None:
    stream = Stream(events((8, 1), (2, 2), (-8, 1), (4, 1), (-2, 2)), ())
    # The first dies at 2, the second at 4; the last after the end, which is 5.
    assert stream.deaths == (2, 4, 0, 5, 0)


def test_a_release_of_what_was_there_before_is_nobodys_death() -> None:
    assert Stream(events((-8, 1), (4, 1)), ()).deaths == (0, 2)


# -- leaving allocations out


@given(streams(), st.sets(st.integers(0, 11)))
def test_left_out_are_the_allocations_and_their_releases_only(
    stream: tuple[Event, ...], left_out: set[int]
) -> None:
    allocations = {i for i in left_out if i < len(stream) and stream[i].nbytes > 0}
    gone = allocations | {release_of(stream, i) for i in allocations}
    kept = [event for index, event in enumerate(stream) if index not in gone]
    assert without(stream, allocations) == kept


def test_of_two_allocations_at_an_address_only_the_one_is_left_out() -> None:
    stream = events((8, 1), (-8, 1), (4, 1), (-4, 1), (-2, 9))
    assert without(stream, {0}) == [*events((4, 1), (-4, 1), (-2, 9))]
    assert without(stream, {2}) == [*events((8, 1), (-8, 1), (-2, 9))]
    assert without(stream, set()) == list(stream)


# -- operators


@pytest.mark.parametrize(
    ("calls", "operator"),
    [
        (("aten::mm",), "aten::mm"),
        (("aten::linear", "aten::addmm"), "aten::addmm"),
        (("aten::mm", "aten::empty"), "aten::mm"),
        (("aten::sort", "aten::empty_like", "aten::empty_strided"), "aten::sort"),
        (("aten::sum", "aten::resize_", "aten::new_empty"), "aten::sum"),
        (("aten::empty",), "aten::empty"),
        (("MmBackward0", "aten::mm", "autograd::helper"), "aten::mm"),
        (("Optimizer.step", "MmBackward0"), "MmBackward0"),
        ((), "Python"),
    ],
)
def test_memory_is_that_of_the_innermost_operator_that_does_not_only_get_it(
    calls: tuple[str, ...], operator: str
) -> None:
    event = Event(8, 1, tuple(range(1, len(calls) + 1)))
    assert Stream((event,), ("aten::other", *calls)).operator(event) == operator


# -- scratch


def test_scratch_is_summed_by_operator_and_by_what_lives_at_the_peak() -> None:
    mm, sort, sum_ = (0,), (1,), (2,)
    stream = Stream(
        (
            Event(8, 1, mm),
            Event(-8, 1),
            Event(16, 2, mm),
            Event(4, 3, sort),
            Event(2, 4, sum_),
            Event(-4, 3),  # the peak is said to be just before this
            Event(64, 5, sum_),
            Event(1, 6, sum_),
        ),
        ("aten::mm", "aten::sort", "aten::sum"),
    )

    rows = scratch_of(stream, {0, 2, 3, 4, 6}, peak_index=4, kind=ALLOCATED)

    assert rows == [
        Scratch("aten::mm", ALLOCATED, 2, 24, 16),  # 8 + 16, of which the 8 are gone
        Scratch("aten::sort", ALLOCATED, 1, 4, 4),
        Scratch("aten::sum", ALLOCATED, 2, 66, 2),  # 2 + 64, of which 64 come later; not the 1
    ]


def test_the_event_of_the_peak_is_live_at_it_and_what_it_releases_is_not() -> None:
    stream = Stream(events((8, 1), (-8, 1)), ())
    assert scratch_of(stream, {0}, 0, ALLOCATED) == [Scratch("Python", ALLOCATED, 1, 8, 8)]
    assert scratch_of(stream, {0}, 1, ALLOCATED) == [Scratch("Python", ALLOCATED, 1, 8, 0)]


def test_scratch_is_sorted_by_bytes_at_the_peak_then_by_all_bytes_then_by_name() -> None:
    names = ("aten::d", "aten::c", "aten::b", "aten::a")
    stream = Stream(
        (
            Event(1, 1, (0,)),  # the only one at the peak
            Event(1, 2, (1,)),
            Event(-1, 2),
            Event(5, 3, (2,)),
            Event(-5, 3),
            Event(5, 4, (3,)),
            Event(-5, 4),
        ),
        names,
    )
    rows = scratch_of(stream, {0, 1, 3, 5}, peak_index=6, kind=ALLOCATED)
    assert [row.operator for row in rows] == ["aten::d", "aten::a", "aten::b", "aten::c"]


def test_without_unmatched_allocations_there_is_no_scratch() -> None:
    assert scratch_of(Stream(events((8, 1)), ()), set(), 0, ALLOCATED) == []
