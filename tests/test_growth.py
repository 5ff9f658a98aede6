"""Tests of graphmem.growth: on schedules made by hand."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given

from graphmem import growth
from graphmem.growth import Held
from graphmem.schedule import Category, Growing, Schedule, Storage
from tests.schedules import Op, build, op, schedules, tensor


def loss(nbytes: int = 4) -> Storage:
    return tensor(nbytes, op="aten.sum", source="train.py:7")


def saved(nbytes: int = 64) -> Storage:
    return tensor(nbytes, Category.SAVED_FOR_BACKWARD, op="aten.tanh", source="train.py:6")


def leaky_step(n: int) -> tuple[Op, ...]:
    return (
        op({f"saved{n}": saved(), f"temporary{n}": 8}, step=n),
        op({f"loss{n}": loss()}, reads=f"saved{n}", frees=f"temporary{n}", step=n),
    )


def names(schedule: Schedule, ids: Iterable[int]) -> list[str | None]:
    return [schedule.storages[i].name for i in ids]


def left(schedule: Schedule) -> list[str | None]:
    return names(schedule, growth.left_behind(schedule))


# -- what steps leave behind


def test_what_every_step_leaves_is_left_behind() -> None:
    schedule = build(*leaky_step(1), *leaky_step(2))
    assert left(schedule) == ["saved2", "loss2"]


def test_one_step_tells_nothing() -> None:
    assert growth.left_behind(build(*leaky_step(1))) == []


def test_what_the_next_step_replaces_is_not_left_behind() -> None:
    schedule = build(
        op({"out1": loss()}, step=1),
        op({"out2": loss()}, step=2, frees="out1"),
        op({"out3": loss()}, step=3, frees="out2"),
    )
    assert left(schedule) == []


def test_what_stands_for_one_step_more_is_told_by_the_third() -> None:
    two = (op({"a": loss()}, step=1), op({"b": loss()}, step=2))
    assert left(build(*two)) == ["b"]
    assert left(build(*two, op({"c": loss()}, step=3, frees="a"))) == []


def test_what_only_the_first_step_makes_stays_unsaid() -> None:
    schedule = build(
        op({"state": tensor(64, Category.OPTIMIZER_STATES)}, step=1), op(step=2, writes="state")
    )
    assert left(schedule) == []


def test_the_same_shape_from_another_line_is_something_else() -> None:
    schedule = build(
        op({"a": tensor(8, source="train.py:1")}, step=1),
        op({"b": tensor(8, source="train.py:2")}, step=2),
    )
    assert left(schedule) == []


def test_three_steps_tell_by_what_outlived_the_next() -> None:
    """Of the last step nobody knows yet what only stands until the next."""
    steps = [
        op({f"kept{n}": loss(), f"latest{n}": loss()}, step=n, frees=f"latest{n - 1}" * (n > 1))
        for n in (1, 2, 3)
    ]
    assert left(build(*steps[:2])) == ["kept2", "latest2"]
    assert left(build(*steps)) == ["kept2"]


@given(schedules())
def test_what_is_left_behind_is_alive_at_the_end_and_of_one_step(schedule: Schedule) -> None:
    for storage in (schedule.storages[i] for i in growth.left_behind(schedule)):
        assert storage.freed is None
        assert schedule.operations[storage.born].step == growth.told_by(schedule)


# -- who keeps it


def test_a_kept_tensor_keeps_what_led_to_it() -> None:
    schedule = build(*leaky_step(1), *leaky_step(2))
    root = len(schedule.storages) - 1

    (found,) = growth.kept(schedule, [root - 2, root], [Held(root, "losses")], 2, 3)

    assert (found.kind, found.holder, found.times) == (Growing.GRAPH, "losses", 3)
    assert names(schedule, found.storages) == ["saved2", "loss2"]
    assert names(schedule, [found.root]) == ["loss2"]
    assert found.nbytes == 64 + 4


def test_a_kept_tensor_without_a_past_is_one_of_tensors() -> None:
    schedule = build(op({"a": loss()}, step=1), op({"b": loss()}, step=2))
    (found,) = growth.kept(schedule, [1], [Held(1, "losses")], 2, 2)
    assert (found.kind, found.nbytes) == (Growing.TENSORS, 4)


def test_each_storage_is_in_one_growth_that_of_the_first_holder() -> None:
    schedule = build(
        *leaky_step(1),
        op({"y": saved()}, step=2),
        op({"z": saved(32)}, reads="y", step=2),
        op({"l": loss()}, reads="z", step=2),
    )
    y, z, end = range(3, 6)

    found = growth.kept(schedule, [y, z, end], [Held(y, "outs"), Held(end, "losses")], 2, 2)

    assert [(g.holder, g.nbytes) for g in found] == [("outs", 64), ("losses", 32 + 4)]


def test_the_graph_ends_where_the_step_began() -> None:
    """What updated a weight in this step or before is not behind what reads the weight."""
    schedule = build(
        op({"a": saved()}, step=1),
        op({"b": saved()}, step=2),
        op(reads="b", writes="w", step=2),
        op({"l": loss()}, reads="w", step=2),
        before={"w": tensor(4, Category.PARAMETERS)},
    )
    (first, second) = growth.kept(schedule, [2, 3], [Held(3, "losses")], 2, 2)
    assert (first.holder, first.nbytes) == (None, 64)
    assert (second.holder, second.kind) == ("losses", Growing.TENSORS)


def test_what_nobody_was_found_to_hold_goes_by_its_line() -> None:
    schedule = build(*leaky_step(1), *leaky_step(2))
    found = growth.kept(schedule, [3, 5], [], 2, 2)
    assert [(g.kind, g.holder, g.nbytes) for g in found] == [
        (Growing.TENSORS, None, 64),
        (Growing.TENSORS, None, 4),
    ]


# -- caches


def keys(length: int, module: str = "layer", step_bytes: int = 16) -> Storage:
    return tensor(
        length * step_bytes,
        shape=(2, length, step_bytes // 2),
        op="aten.cat",
        module=module,
        source="model.py:9",
    )


def turn(new: str, old: str, length: int, *, module: str = "layer", step: int = 1) -> Op:
    made = {new: keys(length, module)}
    return op(made, target="aten.cat", reads=old, frees=old, step=step)


def test_a_cache_grows_by_as_much_each_time() -> None:
    schedule = build(
        op({"k4": keys(4)}), turn("k5", "k4", 5), turn("k6", "k5", 6), turn("k7", "k6", 7)
    )
    (found,) = growth.caches(schedule)
    assert (found.kind, found.nbytes, found.times) == (Growing.CACHE, 16, 3)
    assert names(schedule, [found.root]) == ["k7"]
    assert found.each_step is False


def test_the_caches_of_all_layers_are_one_growth_and_of_all_steps_too() -> None:
    schedule = build(
        *(
            each
            for step in (1, 2)
            for each in (
                op({f"a1{step}": keys(1, "a"), f"b1{step}": keys(1, "b")}, step=step),
                turn(f"a2{step}", f"a1{step}", 2, module="a", step=step),
                turn(f"b2{step}", f"b1{step}", 2, module="b", step=step),
                turn(f"a3{step}", f"a2{step}", 3, module="a", step=step),
                turn(f"b3{step}", f"b2{step}", 3, module="b", step=step),
                op(frees=f"a3{step} b3{step}", step=step),
            )
        )
    )
    (found,) = growth.caches(schedule)
    assert names(schedule, found.storages) == ["a32", "b32"]
    assert (found.nbytes, found.times) == (2 * 16, 2)


@pytest.mark.parametrize("lengths", [(4, 5), (4, 5, 7), (4, 4, 4), (4, 8, 16)], ids=str)
def test_no_cache_without_two_equal_additions(lengths: tuple[int, ...]) -> None:
    turns = [turn(f"k{n}", f"k{n - 1}", length) for n, length in enumerate(lengths) if n]
    assert growth.caches(build(op({"k0": keys(lengths[0])}), *turns)) == ()


def test_a_concatenation_of_others_is_no_cache() -> None:
    schedule = build(
        op({"a": keys(1)}),
        *(op({f"k{n}": keys(n)}, target="aten.cat", reads="a") for n in (2, 3, 4)),
    )
    assert growth.caches(schedule) == ()


def test_a_cache_over_steps_is_guessed_after_two_and_known_after_three() -> None:
    two = (op({"k1": keys(1)}, step=1), turn("k2", "k1", 2, step=2))
    three = build(*two, turn("k3", "k2", 3, step=3))
    assert growth.crosses_steps(build(*two))
    assert growth.caches(build(*two)) == ()

    (found,) = growth.caches(three, known=2)

    assert (found.each_step, found.nbytes) == (True, 16)
    assert names(three, [found.root]) == ["k2"]
