"""Tests of graphmem.recomputation: small schedules, counted by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graphmem.recomputation import find
from graphmem.schedule import Category, Phase, Schedule
from tests.schedules import build, op, tensor

SAVED = Category.SAVED_FOR_BACKWARD


def backward(*args: Any, **traits: Any) -> Any:
    return op(*args, phase=Phase.BACKWARD, **traits)


def found(schedule: Schedule) -> Any:
    return find(schedule, lambda storage: storage.nbytes)


def test_nothing_is_found_where_nothing_is_recomputed() -> None:
    assert found(build(op({"a": 8}), backward(reads="a", frees="a"))) is None


def test_what_is_remade_is_held_for_backward_and_the_largest_counts_at_once() -> None:
    """Two blocks: b keeps ``x`` for its recomputation alone, a reads ``w`` elsewhere too."""
    schedule = build(
        op({"x": tensor(8, SAVED), "w": tensor(4, SAVED)}),
        backward({"p": tensor(16, SAVED), "q": 2}, reads="x", frees="q", recomputes="b"),
        backward({"r": tensor(32, SAVED)}, reads="p", recomputes="b"),
        backward(reads="p r w", frees="p r x"),
        backward({"s": tensor(64, SAVED)}, reads="w", recomputes="a"),
        backward(reads="s", frees="s w"),
    )
    answer = found(schedule)
    assert answer.modules == ("b", "a")
    assert answer.count == 2
    assert answer.remade_bytes == 16 + 32 + 64  # q is let go inside
    assert (answer.at_once_bytes, answer.largest) == (64, "a")
    assert answer.kept_bytes == 8  # w is read by another operation of backward
    assert answer.saved_bytes == 16 + 32 + 64 - 64 - 8


def test_checkpoints_that_remake_nothing_are_found_by_the_options() -> None:
    schedule = replace(
        build(op({"a": 8}), backward(reads="a", frees="a")),
        checkpoints=("layer",),
        flops=(100, 0),
    )
    answer = found(schedule)
    assert answer.modules == ("layer",)
    assert (answer.count, answer.remade_bytes, answer.saved_bytes) == (0, 0, 0)
    assert (answer.flops, answer.recomputed_flops, answer.largest) == (100, 0, None)


def test_only_the_last_step_counts() -> None:
    first = backward({"p": tensor(16, SAVED)}, recomputes="a")
    schedule = build(
        first,
        backward(reads="p", frees="p"),
        backward({"q": tensor(8, SAVED)}, recomputes="a", step=2),
        backward(reads="q", frees="q", step=2),
    )
    answer = found(replace(schedule, steps=2))
    assert (answer.count, answer.remade_bytes) == (1, 8)


def test_of_micro_batches_only_the_last_counts() -> None:
    schedule = build(
        op({"a": 8}),
        backward({"p": tensor(16, SAVED)}, recomputes="m"),
        backward(reads="p", frees="p a"),
        op({"b": 8}),
        backward({"q": tensor(16, SAVED)}, recomputes="m"),
        backward(reads="q", frees="q b"),
    )
    answer = found(schedule)
    assert (answer.count, answer.remade_bytes, answer.at_once_bytes) == (1, 16, 16)
