"""Tests of graphmem.compiled: what fusion saves of a schedule, by hand."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from graphmem.compiled import fused
from graphmem.liveness import measure
from graphmem.schedule import Category, Schedule, Storage, verify
from tests.schedules import build, op, schedules, tensor


def made(nbytes: int, *, fused: bool = False) -> Storage:
    """The result of a generated kernel."""
    return tensor(nbytes, generated=True, fused=fused)


def peak(schedule: Schedule) -> int:
    return measure(schedule, lambda storage: storage.nbytes).peak_bytes


def test_what_a_fused_kernel_alone_sees_takes_nothing() -> None:
    schedule = build(
        op({"a": 100}),
        op({"b": made(30, fused=True)}, reads="a"),
        op({"c": made(40)}, reads="b", frees="a b"),
    )
    assert peak(schedule) == 170  # a, b and c
    assert peak(fused(schedule)) == 140  # a and c


def test_what_it_reads_lives_until_it_is_read() -> None:
    schedule = build(
        op({"a": 100}),
        op({"b": made(30, fused=True)}, reads="a", frees="a"),
        op({"c": made(40)}, reads="b", frees="b"),
    )
    assert peak(schedule) == 130  # a and b
    assert peak(fused(schedule)) == 140  # b is computed when c is: a and c
    verify(fused(schedule))


def test_a_result_lies_where_its_last_input_did() -> None:
    schedule = build(
        op({"a": 100}),
        op({"b": made(100)}, reads="a", frees="a"),
        op({"c": made(100)}, reads="b", frees="b"),
        op({"d": made(60)}, reads="c"),
    )
    assert peak(schedule) == 200
    assert peak(fused(schedule)) == 160  # a, b and c are one; and d


def test_parameters_and_what_is_read_later_are_not_written_over() -> None:
    weight = tensor(100, Category.PARAMETERS)
    schedule = build(
        op({"a": 100}, reads="w"),
        op({"b": made(100)}, reads="w a", frees="w"),
        op({"c": 1}, reads="a b", frees="a b"),
        before={"w": weight},
    )
    assert peak(fused(schedule)) == peak(schedule) == 300  # w, a and b


@given(schedules())
def test_without_a_compiler_nothing_changes(schedule: Schedule) -> None:
    assert fused(schedule) == replace(schedule, operations=fused(schedule).operations)
    assert peak(fused(schedule)) == peak(schedule)
