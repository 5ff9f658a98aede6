"""Tests of graphmem.measure.pairing on streams made by hand, and on random ones."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.measure.pairing import unmatched
from graphmem.measure.stream import Event, Stream

NOTHING: tuple[set[int], set[int]] = (set(), set())


def stream(*steps: tuple[str, int | str]) -> Stream:
    """A stream of ``(calls, event)``.

    ``("mm", 8)`` begins a call of ``aten::mm`` that allocates 8 B; ``("mm>empty", 8)`` begins
    two, one in the other; ``("", 8)`` allocates in the calls before, ``("^", 8)`` in none;
    ``("", "x8")`` releases the latest allocation of 8 B.
    """
    events: list[Event] = []
    names: list[str] = []
    inside: tuple[int, ...] = ()
    open_: list[Event] = []
    for calls, what in steps:
        if calls == "^":
            inside = ()
        elif calls:
            new = calls.split(">")
            inside = tuple(range(len(names), len(names) + len(new)))
            names += [f"aten::{name}" for name in new]
        if isinstance(what, str):
            (gone,) = [e for e in open_ if e.nbytes == int(what[1:])][-1:]
            open_.remove(gone)
            events.append(Event(-gone.nbytes, gone.address))
        elif what:
            open_.append(Event(what, len(events), inside))
            events.append(open_[-1])
    return Stream(tuple(events), tuple(names))


@st.composite
def predictions(draw: st.DrawFn) -> Stream:
    """Streams as predicted: each allocation lies in one call, and lives for some time."""
    names = draw(st.lists(st.sampled_from(("mm", "add", "sum")), min_size=1, max_size=6))
    sizes = st.lists(st.integers(1, 3), max_size=3)
    events: list[Event] = []
    for number, each in enumerate([draw(sizes) for _ in names]):
        for nbytes in each:
            events.append(Event(nbytes, len(events), (number,)))
            if draw(st.booleans()):
                events.append(Event(-nbytes, len(events) - 1))
    return Stream(tuple(events), tuple(f"aten::{name}" for name in names))


# -- in any stream


@given(predictions())
def test_of_two_identical_streams_nothing_is_left(predicted: Stream) -> None:
    assert unmatched(predicted, predicted) == NOTHING


@given(predictions(), predictions())
def test_pairs_have_equal_sizes(measured: Stream, predicted: Stream) -> None:
    extra, missing = unmatched(measured, predicted)

    def paired(whole: Stream, left: set[int]) -> Counter[int]:
        allocations = {i for i, e in enumerate(whole.events) if e.nbytes > 0}
        assert left <= allocations
        return Counter(whole.events[i].nbytes for i in allocations - left)

    assert paired(measured, extra) == paired(predicted, missing)


@given(predictions(), st.data())
def test_scratch_of_a_size_of_its_own_is_found_wherever_it_is(
    predicted: Stream, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(predicted.events)))
    call = data.draw(st.integers(0, len(predicted.calls) - 1))
    scratch = (Event(64, -1, (call,)), Event(-64, -1))
    events = (*predicted.events[:at], *scratch, *predicted.events[at:])
    longer = Stream(events, predicted.calls)
    assert unmatched(longer, predicted) == ({at}, set())
    assert unmatched(predicted, longer) == (set(), {at})


# -- 1. calls are aligned by name


def test_extra_scratch_in_an_operators_call_is_found() -> None:
    measured = stream(("mm", 8), ("add", 4), ("", 16), ("", "x16"), ("mm", 8))
    predicted = stream(("mm", 8), ("add", 4), ("mm", 8))
    assert unmatched(measured, predicted) == ({2}, set())


def test_what_a_kernel_calls_to_get_memory_belongs_to_the_call_around_it() -> None:
    measured = stream(("mm>empty", 8), ("sort>new_empty", 4), ("", 2))
    predicted = stream(("mm", 8), ("sort", 4))
    assert unmatched(measured, predicted) == ({2}, set())


def test_of_nested_predicted_calls_the_innermost_has_the_memory() -> None:
    # The two of 8 B are told apart by their calls: the sum keeps its own, linear's is extra.
    measured = stream(("linear", 8), ("", "x8"), ("linear>sum", 8))
    predicted = stream(("linear", 0), ("linear", 0), ("sum", 8))
    assert unmatched(measured, predicted) == ({0}, set())


def test_what_a_kernel_calls_belongs_to_it_though_others_are_predicted_by_that_name() -> None:
    # The convolution's result is a clone, which would be taken for the one that comes next.
    measured = Stream(
        (
            *(Event(8, 0, (0,)), Event(-8, 0), Event(8, 1, (0, 1))),
            *(Event(8, 2, (2,)), Event(-8, 2), Event(4, 3, (3,))),
        ),
        ("aten::conv", "aten::clone", "aten::clone", "aten::mm"),
    )
    predicted = stream(("conv", 8), ("clone", 8), ("", "x8"), ("mm", 4))
    assert unmatched(measured, predicted) == ({0}, set())


def test_more_calls_of_a_real_kernel_do_not_move_the_others() -> None:
    # Sizes alone would pair the first 8 B with the predicted ones.
    measured = stream(("copy_", 8), ("", "x8"), ("mm", 8), ("copy_", 8), ("add", 8))
    predicted = stream(("mm", 8), ("add", 8))
    assert unmatched(measured, predicted) == ({0, 3}, set())


def test_calls_that_no_prediction_has_do_not_part_those_that_it_has() -> None:
    # Taken in, the empty would leave the second mm and add as the only two in a row.
    measured = stream(("mm>empty", 8), ("", 8), ("", "x8"), ("add>empty", 4), ("mm", 8), ("add", 4))
    predicted = stream(("mm", 8), ("add", 4), ("mm", 8), ("add", 4))
    assert unmatched(measured, predicted) == ({1}, set())


def test_calls_that_allocate_nothing_in_another_order_do_not_part_those_that_do() -> None:
    # Two detaches in a row could be aligned in the place of the one mm: its 8 B would be left,
    # and the scratch of the sum, which has that size, would be taken for them.
    measured = stream(("sum", 2), ("", 8), ("mm", 8), ("detach", 0), ("detach", 0))
    predicted = stream(("sum", 2), ("detach", 0), ("detach", 0), ("mm", 8))
    assert unmatched(measured, predicted) == ({1}, set())


def test_a_name_that_all_of_a_long_run_has_is_aligned() -> None:
    rest = [("mm", 8)] * 299
    measured = stream(("mm", 8), ("", "x8"), ("", 8), *rest)
    predicted = stream(("add", 4), ("mm", 8), *rest)
    assert unmatched(measured, predicted) == ({0}, {0})


def test_calls_that_only_one_stream_has_leave_the_rest_aligned() -> None:
    measured = stream(("mm", 8), ("sum", 4), ("mm", 8))
    predicted = stream(("mm", 8), ("relu", 2), ("mm", 8))
    assert unmatched(measured, predicted) == ({1}, {1})


# -- 2. the longest-lived of equal allocations


def test_of_two_equal_allocations_in_a_call_the_longer_lived_is_the_result() -> None:
    scratch_first = stream(("mm", 1), ("", "x1"), ("", 1), ("add", 4))
    scratch_last = stream(("mm", 1), ("", 1), ("", "x1"), ("add", 4))
    predicted = stream(("mm", 1), ("add", 4))
    assert unmatched(scratch_first, predicted) == ({0}, set())
    assert unmatched(scratch_last, predicted) == ({1}, set())


def test_two_predicted_results_of_a_call_are_the_two_longest_lived() -> None:
    measured = stream(("sort", 8), ("", "x8"), ("", 8), ("", 8), ("add", 1))
    predicted = stream(("sort", 8), ("", 8), ("add", 1))
    assert unmatched(measured, predicted) == ({0}, set())


def test_only_an_allocation_of_the_same_size_is_the_result() -> None:
    measured = stream(("mm", 9), ("", 8), ("", "x8"))
    assert unmatched(measured, stream(("mm", 8))) == ({0}, set())


def test_a_missing_predicted_result_is_found() -> None:
    measured = stream(("mm", 8), ("add", 0), ("mm", 8))
    predicted = stream(("mm", 8), ("add", 4), ("mm", 8))
    assert unmatched(measured, predicted) == (set(), {1})


# -- 3. what is left, by size in order


def test_tensors_below_the_dispatcher_are_paired_by_size_in_order() -> None:
    measured = stream(("^", 4), ("^", 6), ("mm", 8), ("^", 5))
    predicted = stream(("torch.tensor", 4), ("mm", 8), ("torch.tensor", 5))
    assert unmatched(measured, predicted) == ({1}, set())


def test_a_size_that_all_of_many_leftovers_have_is_paired() -> None:
    measured = stream(("^", 5), *[("^", 4)] * 300)
    predicted = stream(*[("torch.tensor", 4)] * 300)
    assert unmatched(measured, predicted) == ({0}, set())


def test_leftovers_in_another_order_are_no_pairs() -> None:
    measured = stream(("^", 4), ("^", 5), ("^", 6))
    predicted = stream(("x", 6), ("x", 4), ("x", 5))
    assert unmatched(measured, predicted) == ({2}, {0})


def test_an_allocation_has_one_partner_only() -> None:
    measured = stream(("mm", 8))
    predicted = stream(("mm", 8), ("", 8))
    extra, missing = unmatched(measured, predicted)
    assert (extra, len(missing)) == (set(), 1)


# -- nothing to pair


def test_releases_need_no_partner() -> None:
    released = Stream((Event(-8, 1),), ())
    assert unmatched(released, Stream((), ())) == NOTHING
    assert unmatched(Stream((), ()), released) == NOTHING


def test_all_of_a_stream_is_left_where_the_other_is_empty() -> None:
    one = stream(("mm", 8), ("", "x8"), ("add", 4))
    empty = Stream((), ())
    assert unmatched(one, empty) == ({0, 2}, set())
    assert unmatched(empty, one) == (set(), {0, 2})


@pytest.mark.parametrize("tail", [(), (Event(-8, 2),)], ids=["never released", "released last"])
def test_the_result_is_what_dies_last(tail: tuple[Event, ...]) -> None:
    scratch_first = (Event(8, 1, (0,)), Event(8, 2, (0,)), Event(-8, 1), *tail)
    measured = Stream(scratch_first, ("aten::mm",))
    assert unmatched(measured, Stream((Event(8, 1, (0,)),), ("aten::mm",))) == ({0}, set())
