"""Tests of graphmem.schedule: verify accepts what holds together and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from graphmem.errors import InvariantError
from graphmem.schedule import BEFORE, Schedule, verify
from tests.schedules import build, op, schedules

Change = Callable[[Schedule], Schedule]

W, A, B, C = range(4)
VALID = build(
    op({"a": 8}, reads="w"),  # 0
    op({"b": 8, "c": 0}, reads="a", frees="a"),  # 1
    op(reads="b", writes="w"),  # 2
    op(writes="c", frees="b"),  # 3
    before={"w": 4},
)


def operation(position: int, **fields: Any) -> Change:
    """A change of one operation."""

    def change(schedule: Schedule) -> Schedule:
        ops = list(schedule.operations)
        ops[position] = replace(ops[position], **fields)
        return replace(schedule, operations=tuple(ops))

    return change


def storage(number: int, **fields: Any) -> Change:
    """A change of one storage."""

    def change(schedule: Schedule) -> Schedule:
        storages = list(schedule.storages)
        storages[number] = replace(storages[number], **fields)
        return replace(schedule, storages=tuple(storages))

    return change


def one_more_storage(schedule: Schedule) -> Schedule:
    """A storage that no operation allocates."""
    more = replace(schedule.storages[A], id=len(schedule.storages))
    return replace(schedule, storages=(*schedule.storages, more))


def test_a_schedule_that_holds_together_is_accepted() -> None:
    verify(VALID)


@given(schedules())
def test_every_random_schedule_is_accepted(schedule: Schedule) -> None:
    verify(schedule)


@pytest.mark.parametrize(
    "schedule",
    [
        pytest.param(Schedule((), ()), id="nothing runs"),
        pytest.param(build(before={"w": 4}), id="nothing runs over one storage"),
        pytest.param(build(op({"a": 8}, frees="a")), id="born and dead in one operation"),
        pytest.param(build(op(frees="w"), before={"w": 4}), id="dead at once"),
        pytest.param(build(op({"a": 8}, reads="a", writes="a")), id="used where it is born"),
        pytest.param(build(op(reads="w w"), before={"w": 4}), id="read twice at once"),
        pytest.param(build(op({"a": 0})), id="empty"),
    ],
)
def test_an_edge_of_what_is_allowed_is_accepted(schedule: Schedule) -> None:
    verify(schedule)


BROKEN: list[tuple[str, Change, str]] = [
    ("storage out of place", storage(A, id=B), "storage 2 stands at position 1"),
    ("bytes below zero", storage(A, nbytes=-8), "storage 1 has -8 bytes"),
    ("operation out of place", operation(2, index=3), "operation 2 (aten.mm) says that its index"),
    ("born twice at once", operation(0, allocates=(A, A)), "0 (aten.mm): storage 1 is born twice"),
    ("born twice", operation(2, allocates=(B,)), "2 (aten.mm): storage 2 is born twice"),
    ("born after its death", operation(3, allocates=(A,)), "storage 1 is born twice"),
    ("born though it was there", operation(1, allocates=(B, C, W)), "storage 0 is born twice"),
    ("born at another time", storage(B, born=0), "1 (aten.mm): storage 2 says 0 is its birth"),
    ("said to have been there", storage(A, born=BEFORE), "storage 1 is born twice"),
    ("not said to have been there", storage(W, born=0), "0 (aten.mm): storage 0 is used before"),
    ("never born", one_more_storage, "storage 4 is never born"),
    ("read before birth", operation(0, reads=(W, B)), "0 (aten.mm): storage 2 is used before"),
    ("written before birth", operation(0, writes=(B,)), "0 (aten.mm): storage 2 is used before"),
    ("read after death", operation(2, reads=(A,)), "2 (aten.mm): storage 1 is used before birth"),
    ("written after death", operation(2, writes=(A,)), "2 (aten.mm): storage 1 is used before"),
    ("read though unheard of", operation(2, reads=(9,)), "2 (aten.mm): storage 9 is used before"),
    ("dies twice at once", operation(1, frees=(A, A)), "1 (aten.mm): storage 1 dies twice"),
    ("dies twice", operation(3, frees=(B, A)), "3 (aten.mm): storage 1 dies twice"),
    ("dies before birth", operation(0, frees=(B,)), "0 (aten.mm): storage 2 dies twice or before"),
    ("last use too early", storage(A, last_use=0), "storage 1: last use is 1"),
    ("last use too late", storage(W, last_use=3), "storage 0: last use is 2"),
    ("last use after a write", storage(C, last_use=1), "storage 3: last use is 3"),
    ("death left out", storage(A, freed=None), "storage 1: death is 1"),
    ("death too early", storage(B, freed=2), "storage 2: death is 3"),
    ("death too late", storage(A, freed=2), "storage 1: death is 1"),
    ("death of what lives", storage(W, freed=3), "storage 0: death is None"),
    ("no operation it dies after", operation(3, frees=()), "storage 2: death is None"),
]


@pytest.mark.parametrize(
    ("change", "message"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN]
)
def test_a_broken_schedule_is_refused_by_its_number(change: Change, message: str) -> None:
    with pytest.raises(InvariantError, match=re.escape(message)):
        verify(change(VALID))


@given(
    schedules(), st.integers(0, 5), st.sampled_from(("born", "last_use", "freed")), st.booleans()
)
def test_a_lifetime_that_is_off_by_one_is_refused(
    schedule: Schedule, number: int, end: str, later: bool
) -> None:
    assume(schedule.storages)
    number %= len(schedule.storages)
    moment = getattr(schedule.storages[number], end)
    moved = 0 if moment is None else moment + (1 if later else -1)

    with pytest.raises(InvariantError):
        verify(storage(number, **{end: moved})(schedule))


def test_an_unknown_storage_is_an_invariant_error() -> None:
    with pytest.raises(InvariantError, match="storage 9"):
        verify(operation(0, allocates=(1, 9))(VALID))


@pytest.mark.parametrize("fields", [{"scratch": ((8, -8),)}, {"step": 7}, {"step": 0}], ids=str)
def test_scratch_below_zero_and_steps_that_there_are_not_are_refused(
    fields: dict[str, int],
) -> None:
    with pytest.raises(InvariantError):
        verify(operation(3, **fields)(VALID))
