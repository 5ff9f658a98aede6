"""The search for the largest size, beside one that asks every size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from torch import nn

from graphmem.devices import DEFAULT
from graphmem.errors import GraphmemError, InputError, UsageError
from graphmem.instantiate import Recorded
from graphmem.largest import MaxBatch, Memory, largest
from graphmem.largest.memory import least_bytes
from graphmem.options import Target
from graphmem.resolve import make_options
from graphmem.schedule import Category, Schedule
from tests.instantiate import subjects
from tests.instantiate.subjects import images, rows, tokens, tracer
from tests.schedules import build, op, tensor

MIB = 1 << 20


def _by_force(trace: Callable[[int], Recorded], memory: Memory, most: int) -> int:
    return max((n for n in range(1, most) if memory.fit(trace(n).schedule).fits), default=0)


def _found(trace: Callable[[int], Recorded], budget: int, **others: Any) -> MaxBatch:
    return largest("model", trace, Memory(make_options(), budget), **others)


@pytest.mark.parametrize(
    ("model", "inputs", "budget"),
    [
        (subjects.convnet(), images(side=64), 40 * MIB),
        (subjects.convnet(inplace=False), images(side=64), 64 * MIB),
        (subjects.Checkpointed(), rows(), 26 * MIB),
    ],
    ids=["convnet", "convnet out of place", "checkpointed"],
)
def test_it_is_what_tracing_every_size_finds(
    model: nn.Module, inputs: subjects.Inputs, budget: int
) -> None:
    trace = tracer(model, inputs)
    found = _found(trace, budget)
    assert len(found.traced) <= 5
    assert found.next is not None
    above = found.size
    while least_bytes(trace(above).schedule) <= budget:
        above += max(1, above // 8)
    checked = range(max(1, found.size - 3), min(above, found.size + 40))
    memory = Memory(make_options(), budget)
    fits = [n for n in checked if memory.fit(trace(n).schedule).fits]
    assert max(fits) == found.size


def test_what_is_told_of_a_size_is_what_analyze_tells() -> None:
    model = subjects.convnet()
    trace = tracer(model, images(side=64), device="T4")
    memory = Memory(make_options(device="T4"), 40 * MIB)
    found = largest("model", trace, memory)
    assert found.peak is not None
    assert found.next is not None
    for sized in (found.peak, found.next):
        assert (sized.peak, dict(sized.breakdown)) == memory.peak(trace(sized.size).schedule)
        assert sum(sized.breakdown.values()) == sized.peak.allocated_bytes
    assert found.peak.fit.fits
    for size in range(max(1, found.size - 3), found.size + 4):
        schedule = trace(size).schedule
        assert memory.fits(schedule) == memory.fit(schedule).fits
    assert not found.next.fit.fits
    assert found.next.size == found.size + 1


# -- sizes whose memory is known by hand: each is traced, as there is no evidence


def _made(nbytes: Mapping[int, int] | Callable[[int], int], own: int = 0) -> Any:
    """A trace of one operation that asks for some bytes, beside parameters."""

    def trace(size: int) -> Recorded:
        asked = nbytes(size) if callable(nbytes) else nbytes[size]
        before = {"w": tensor(own, Category.PARAMETERS)} if own else {}
        schedule: Schedule = build(op({"x": asked}), before=before)
        return Recorded(schedule, None, Target.CUDA, DEFAULT)

    return trace


def test_a_run_takes_segments_of_two_mib() -> None:
    # above 10 MiB a segment is the request rounded up to 2 MiB: 64 MiB are 16 times 4 MiB
    found = _found(_made(lambda n: n * 4 * MIB), 64 * MIB)
    assert (found.size, found.exceptions, found.looked_to) == (16, (), None)
    assert found.limited_by is not None
    assert found.limited_by.missing_bytes == 4 * MIB
    assert found.limited_by.request is not None
    assert found.limited_by.request.requested_bytes == 17 * 4 * MIB


def test_a_larger_size_that_fits_where_a_smaller_does_not_is_the_answer() -> None:
    """Odd sizes have a kernel that takes 20 MiB for itself."""

    def trace(size: int) -> Recorded:
        scratch = ((20 * MIB,),) if size % 2 else ()
        schedule = build(op({"x": size * 4 * MIB}, scratch=scratch))
        return Recorded(schedule, None, Target.CUDA, DEFAULT)

    # 64 - 20 = 44 = 11 * 4: odd ones fit up to 11, even ones up to 16
    found = _found(trace, 64 * MIB)
    assert found.size == 16
    assert set(found.exceptions) <= {13, 15}
    assert found.limited_by is not None
    assert found.limited_by.breakdown["workspaces"] == 20 * MIB  # of the next, 17


def test_where_not_even_one_fits_the_answer_is_none() -> None:
    found = _found(_made(lambda n: n * 30 * MIB), 20 * MIB)
    assert (found.size, found.peak) == (0, None)
    assert found.next is not None
    assert found.next.size == 1
    assert found.limited_by is not None
    assert found.limited_by.missing_bytes == 10 * MIB


def test_one_may_fit_where_two_do_not() -> None:
    found = _found(_made(lambda n: n * 30 * MIB), 40 * MIB)
    assert found.size == 1
    assert found.next is not None
    assert found.next.size == 2


def test_only_multiples_are_sizes() -> None:
    found = _found(_made(lambda n: n * 4 * MIB), 90 * MIB, multiple_of=8)
    assert found.size == 16  # 22 * 4 = 88
    assert found.next is not None
    assert found.next.size == 24
    assert all(size % 8 == 0 for size in found.traced)


def test_a_model_that_takes_no_more_is_the_limit() -> None:
    def trace(size: int) -> Recorded:
        if size > 10:
            raise InputError("no more than 10")
        return _made(lambda n: n * MIB)(size)

    found = _found(trace, 1000 * MIB)
    assert (found.size, found.next, found.limited_by) == (10, None, None)
    assert found.refusal == "no more than 10"


def test_parameters_that_are_too_much_are_an_error() -> None:
    with pytest.raises(UsageError, match="parameters and buffers alone take 50"):
        _found(_made(lambda n: n * MIB, own=50 * MIB), 20 * MIB)


def test_a_dimension_that_changes_nothing_is_an_error() -> None:
    with pytest.raises(InputError, match="the run is the same at 2 and 4"):
        _found(_made(lambda _: MIB), 20 * MIB)


def test_a_model_that_fails_at_all_sizes_tells_why() -> None:
    def trace(size: int) -> Recorded:
        raise GraphmemError(f"not at {size}")

    with pytest.raises(GraphmemError, match="not at 2"):
        _found(trace, 20 * MIB)


def test_a_sequence_goes_by_64() -> None:
    trace = tracer(subjects.Attention(), tokens())
    found = _found(trace, 48 * MIB, dimension="seq")
    assert found.size % 64 == 0
    assert len(found.traced) <= 6
    memory = Memory(make_options(), 48 * MIB)
    assert memory.fit(trace(found.size).schedule).fits
    assert not memory.fit(trace(found.size + 64).schedule).fits
    assert found.to_dict()["multiple_of"] == 64
    said = " ".join(str(found).split())
    assert f"of {found.size + 1} to {found.size + 63} some may fit; multiple-of 1 finds" in said


@pytest.mark.parametrize(("device", "budget"), [(None, None), ("T4", 0)])
def test_memory_that_is_none_is_an_error(device: str | None, budget: int | None) -> None:
    with pytest.raises(UsageError):
        Memory(make_options(device=device), budget)


def test_of_a_gpu_and_a_budget_both_must_hold() -> None:
    trace = _made(lambda n: n * 4 * MIB)
    both = Memory(make_options(device="T4"), 64 * MIB)
    assert both.allowed_bytes == 64 * MIB
    assert largest("model", trace, both).size == 16
    assert _by_force(trace, both, 20) == 16
