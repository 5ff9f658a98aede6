"""Tests of graphmem.liveness against a walk that recounts everything at every operation."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem import liveness
from graphmem.errors import InvariantError
from graphmem.liveness import Lifetimes
from graphmem.schedule import BEFORE, Category, Schedule, Storage
from tests.schedules import build, op, schedules, tensor

BOTH = st.sampled_from(Lifetimes)
LASTING = {"parameters", "buffers", "optimizer_states", "workspaces"}


def nbytes(storage: Storage) -> int:
    return storage.nbytes


def blocks(storage: Storage) -> int:
    return (storage.nbytes + 511) // 512 * 512


def walk(schedule: Schedule) -> list[set[int]]:
    """What is alive while each operation runs, from what operations allocate and free."""
    alive = {s.id for s in schedule.storages if s.born == BEFORE}
    seen = []
    for each in schedule.operations:
        alive |= set(each.allocates)
        seen.append(set(alive))
        alive -= set(each.frees)
    return seen


def walk_to_last_use(schedule: Schedule) -> list[set[int]]:
    """As ``walk``, without those that are born in the schedule, die in it and are done with."""
    touched = [{*o.reads, *o.writes, *o.allocates} for o in schedule.operations]
    mortal = {i for o in schedule.operations for i in o.allocates}
    mortal &= {i for o in schedule.operations for i in o.frees}
    return [
        {i for i in alive if i not in mortal or any(i in later for later in touched[index:])}
        for index, alive in enumerate(walk(schedule))
    ]


WALKS = {Lifetimes.OBSERVED: walk, Lifetimes.LAST_USE: walk_to_last_use}


@given(schedules(), BOTH, st.sampled_from((nbytes, blocks)))
def test_live_bytes_are_those_of_a_recount_at_every_operation(
    schedule: Schedule, lifetimes: Lifetimes, size: Callable[[Storage], int]
) -> None:
    alive = WALKS[lifetimes](schedule)

    live = liveness.measure(schedule, size, lifetimes)

    recount = tuple(
        sum(size(schedule.storages[i]) for i in ids) + each.scratch_bytes
        for ids, each in zip(alive, schedule.operations, strict=True)
    )
    assert live.live_bytes == recount
    assert live.peak_bytes == max(recount)
    assert live.peak_index == min(i for i, b in enumerate(recount) if b == max(recount))


@given(schedules(), BOTH)
def test_what_is_live_at_an_operation_is_what_a_walk_finds_there(
    schedule: Schedule, lifetimes: Lifetimes
) -> None:
    found = [
        {s.id for s in liveness.live_at(schedule, each.index, lifetimes)}
        for each in schedule.operations
    ]
    assert found == WALKS[lifetimes](schedule)


@given(schedules())
def test_no_operation_holds_more_to_last_use_than_is_observed(schedule: Schedule) -> None:
    observed = liveness.measure(schedule, nbytes)
    best = liveness.measure(schedule, nbytes, Lifetimes.LAST_USE)

    pairs = zip(best.live_bytes, observed.live_bytes, strict=True)
    assert all(fewer <= more for fewer, more in pairs)
    assert best.peak_bytes <= observed.peak_bytes


@given(schedules(), st.integers(0, 5))
def test_idle_is_what_neither_this_step_nor_the_next_one_uses(
    schedule: Schedule, number: int
) -> None:
    index = min(number, len(schedule.operations) - 1)
    live = liveness.live_at(schedule, index)

    idle = {s.id for s in liveness.idle(live, index)}

    used = {i for o in schedule.operations[index:] for i in (*o.reads, *o.writes, *o.allocates)}
    again = {s.id for s in schedule.storages if s.born == BEFORE or s.category in LASTING}
    assert idle == {s.id for s in live} - used - again


def test_an_operation_sees_its_inputs_its_results_and_its_scratch() -> None:
    schedule = build(
        op({"a": 8}, reads="w"),  # w 4 + a 8 = 12
        op({"b": 16}, reads="a", frees="a", scratch=((32,),)),  # 4 + 8 + 16 + 32 = 60
        op({"c": 2}, reads="b", frees="b c"),  # a is gone: 4 + 16 + 2 = 22
        op(reads="w", frees="w"),  # w 4 alone
        op(),  # nothing
        before={"w": 4},
    )

    live = liveness.measure(schedule, nbytes)

    assert live.live_bytes == (12, 60, 22, 4, 0)
    assert (live.peak_bytes, live.peak_index) == (60, 1)


def test_the_peak_is_the_first_of_equal_peaks() -> None:
    schedule = build(op({"a": 8}, frees="a"), op({"b": 8}, frees="b"), op({"c": 8}))
    live = liveness.measure(schedule, nbytes)
    assert live.live_bytes == (8, 8, 8)
    assert live.peak_index == 0


def test_scratch_alone_can_make_a_peak_and_is_gone_afterwards() -> None:
    schedule = build(op({"a": 8}), op(scratch=((1,),)), op(scratch=((0,),)))
    live = liveness.measure(schedule, nbytes)
    assert live.live_bytes == (8, 8 + 1, 8)
    assert live.peak_index == 1


def test_scratch_may_be_given_in_another_size() -> None:
    schedule = build(op({"a": 8}, scratch=((1,),)), op(scratch=((2,),)), op())
    rounded = liveness.measure(schedule, nbytes, scratch=(512, 1024, 0))
    assert rounded.live_bytes == (8 + 512, 8 + 1024, 8)
    assert (rounded.peak_bytes, rounded.peak_index) == (1032, 1)


def test_without_an_operation_there_is_no_peak() -> None:
    with pytest.raises(InvariantError, match="the schedule has no operation"):
        liveness.measure(build(before={"w": 4}), nbytes)


def test_a_schedule_without_storages_holds_its_scratch_only() -> None:
    assert liveness.measure(build(op(), op(scratch=((3,),))), nbytes).live_bytes == (0, 3)


@pytest.mark.parametrize(
    ("born", "last_use", "freed", "to_last_use"),
    [
        pytest.param(1, 2, 5, 2, id="born in the schedule"),
        pytest.param(1, 1, 5, 1, id="never used"),
        pytest.param(1, 2, None, None, id="outlives the schedule"),
        pytest.param(BEFORE, 2, 5, 5, id="was there before"),
        pytest.param(BEFORE, 2, None, None, id="was there before and outlives"),
    ],
)
def test_a_death_is_the_last_use_only_of_what_is_born_and_dies_in_the_schedule(
    born: int, last_use: int, freed: int | None, to_last_use: int | None
) -> None:
    storage = tensor(8, born=born, last_use=last_use, freed=freed)
    assert liveness.death(storage, Lifetimes.OBSERVED) == freed
    assert liveness.death(storage, Lifetimes.LAST_USE) == to_last_use


def test_a_result_that_nobody_reads_dies_where_it_is_born_at_last_use() -> None:
    schedule = build(op({"a": 8}), op({"b": 8}, reads="a"), op(frees="a b"))
    assert liveness.measure(schedule, nbytes).live_bytes == (8, 16, 16)
    best = liveness.measure(schedule, nbytes, Lifetimes.LAST_USE)
    assert best.live_bytes == (8, 16, 0)  # a is read once more at 1, b never


def test_what_is_read_or_written_at_the_moment_itself_is_not_idle() -> None:
    schedule = build(
        op({"done": 1, "read": 1, "written": 1, "later": 1}),
        op({"new": 1}, reads="read", writes="written"),
        op(reads="later", frees="done read written later new"),
    )
    idle = liveness.idle(liveness.live_at(schedule, 1), 1)
    assert [s.name for s in idle] == ["done"]


@pytest.mark.parametrize("category", Category)
def test_what_the_next_step_reads_again_is_not_idle(category: Category) -> None:
    schedule = build(
        op({"made": tensor(1, category)}),
        op(reads="made there"),
        op({"peak": 1}),
        before={"there": tensor(1, category)},
    )
    idle = liveness.idle(liveness.live_at(schedule, 2), 2)
    assert [s.name for s in idle] == ([] if category in LASTING else ["made"])
