"""Tests of graphmem.fits: on a made-up GPU of a few MiB, and on real ones by name."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from graphmem import devices
from graphmem.allocator import place
from graphmem.devices import Gpu
from graphmem.errors import UsageError
from graphmem.fits import fit_on, limit_on, place_on
from graphmem.options import Options, Target
from graphmem.report import Fit, Fits, OutOfMemory, Report, Subject, json_schema
from graphmem.schedule import BEFORE, Category, Phase, Schedule
from graphmem.summary import summarize
from tests.schedules import build, op, schedules, tensor

MIB = 1 << 20
VALIDATOR = Draft202012Validator(json_schema())


def gpu_of(capacity: int, context: tuple[int, int] = (MIB, 3 * MIB)) -> Gpu:
    """A GPU of some MiB with a context of 1 to 3 MiB."""
    return replace(
        devices.DEFAULT, name="tiny", capacity_bytes=capacity * MIB, context_bytes=context
    )


def fit(schedule: Schedule, capacity: int, **options: Any) -> Fit:
    return fit_on(schedule, Options(**options), gpu_of(capacity))


def report_on(schedule: Schedule, **options: Any) -> Report:
    subject = Subject("module", "Net", 3, 2, ())
    made = Options(**options)
    return summarize(schedule, subject, made, made.to_dict(), "2.13.0")


# Three segments of their own, one after the other: 30, then 20 while the 30 are free, then 16.
RUN = build(
    op({"a": 30 * MIB}),
    op({"b": 20 * MIB}, frees="a"),
    op({"c": 16 * MIB}, reads="b", step=1, phase=Phase.BACKWARD, module="fc", source="net.py:3"),
)


# -- what is decided


@pytest.mark.parametrize(
    ("capacity", "headroom", "spare"),
    [
        (70, 0, 17),  # 70 - 3 of context - 50 reserved: c takes 16 of the 30 that a had
        (53, 0, 0),
        (70, 17 * MIB, 0),
    ],
)
def test_what_is_left_is_capacity_less_context_headroom_and_reserved(
    capacity: int, headroom: int, spare: int
) -> None:
    answer = fit(RUN, capacity, headroom=headroom)
    assert answer == Fit("tiny", True, spare * MIB, None)
    assert answer


def test_a_run_that_does_not_fit_says_where_it_ends_and_how_much_it_lacks() -> None:
    answer = fit(RUN, 52)
    assert not answer
    assert answer.headroom_bytes == -MIB  # 52 - 3 - 50
    assert answer.out_of_memory_at == OutOfMemory(
        1, "forward", "aten.mm", 1, "(top level)", None, 20 * MIB
    )


def test_the_moment_is_that_of_the_first_request_without_memory() -> None:
    schedule = build(
        op({"a": 12 * MIB}),
        op({"b": 12 * MIB}, step=2, phase=Phase.BACKWARD, module="fc", source="net.py:3"),
        op({"c": 40 * MIB}),
    )
    at = fit(schedule, 20).out_of_memory_at
    assert at == OutOfMemory(2, "backward", "aten.mm", 1, "fc", "net.py:3", 12 * MIB)
    assert fit(schedule, 20).headroom_bytes == (20 - 3 - 64) * MIB


def test_scratch_runs_out_of_memory_too() -> None:
    schedule = build(op({"a": 12 * MIB}, scratch=((11 * MIB, 10 * MIB),)))
    at = fit(schedule, 30).out_of_memory_at
    assert at is not None
    assert (at.op_index, at.requested_bytes) == (0, 10 * MIB)
    assert fit(schedule, 37)  # 12 + 12 (11, in steps of 2) + 10 + 3 of context


def test_weights_that_do_not_fit_have_no_operation() -> None:
    weight = tensor(40 * MIB, Category.PARAMETERS, module="fc")
    at = fit(build(op(), before={"w": weight}), 30).out_of_memory_at
    assert at == OutOfMemory(None, None, None, BEFORE, "fc", None, 40 * MIB)


def test_what_lies_in_host_memory_needs_none_of_the_gpu() -> None:
    schedule = build(op({"a": tensor(100 * MIB, host=True)}))
    assert fit(schedule, 10).headroom_bytes == 7 * MIB


# -- reclaim


def test_near_the_capacity_free_segments_are_given_back() -> None:
    # 30 are freed and too small for 40, so that 70 are reserved if nothing is given back.
    schedule = build(op({"a": 30 * MIB}), op(frees="a"), op({"b": 40 * MIB}))
    assert max(place(schedule, lambda _: True).reserved_bytes) == 70 * MIB
    assert fit(schedule, 73) == Fit("tiny", True, 0, None)
    assert fit(schedule, 72) == Fit("tiny", True, 29 * MIB, None)  # 72 - 3 - 40
    assert fit(schedule, 43) == Fit("tiny", True, 0, None)
    assert not fit(schedule, 42)


def test_a_segment_of_which_a_part_is_in_use_is_not_given_back() -> None:
    # b is cut off the 30 MiB that a had; 28 of it stay reserved beside the 40.
    schedule = build(
        op({"a": 30 * MIB}), op(frees="a"), op({"b": 2 * MIB}), op({"c": 40 * MIB}, reads="b")
    )
    assert fit(schedule, 73)
    assert fit(schedule, 72).headroom_bytes == -MIB


def test_the_numbers_of_a_report_on_a_gpu_are_those_with_reclaim(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = build(op({"a": 30 * MIB}), op(frees="a"), op({"b": 40 * MIB}))
    monkeypatch.setattr(devices, "GPUS", (gpu_of(60),))

    report = report_on(schedule, device="tiny", headroom=5 * MIB)

    assert report.device == {"name": "tiny", "arch": "sm_80", "capacity_bytes": 60 * MIB}
    assert report.peak.reserved_bytes == 40 * MIB
    assert report.peak.device_bytes == (41 * MIB, 43 * MIB)
    assert dict(report.fits) == {"tiny": Fit("tiny", True, 12 * MIB, None)}  # 60 - 3 - 40 - 5
    assert report_on(schedule).peak.reserved_bytes == 70 * MIB


def test_settings_of_the_allocator_decide_too() -> None:
    schedule = build(op({"a": 17 * MIB}))
    assert fit(schedule, 21)  # 3 of context, 18 for the 17
    halves = "roundup_power2_divisions:2"  # 16, 24, 32 MiB
    assert not fit(schedule, 26, alloc_conf=halves)
    assert fit(schedule, 27, alloc_conf=halves)


def test_a_memory_fraction_is_a_limit() -> None:
    schedule = build(op({"a": 30 * MIB}))
    half = fit(schedule, 50, alloc_conf="per_process_memory_fraction:0.5")
    assert half.headroom_bytes == -5 * MIB  # half of 50, less 30
    assert half.out_of_memory_at is not None
    assert fit(schedule, 60, alloc_conf="per_process_memory_fraction:0.5")
    with pytest.raises(UsageError, match="leaves a process no memory"):
        fit(schedule, 50, alloc_conf="per_process_memory_fraction:0")


@pytest.mark.parametrize("conf", [None, "expandable_segments:True"])
@given(schedule=schedules(), capacity=st.integers(0, 12))
def test_a_run_fits_exactly_if_its_placement_never_lacks_memory(
    conf: str | None, schedule: Schedule, capacity: int
) -> None:
    options = Options(alloc_conf=conf)
    gpu = gpu_of(capacity, (MIB, MIB))
    answer = fit_on(schedule, options, gpu)
    placement = place_on(schedule, options, gpu, MIB)
    reserved = max(placement.reserved_bytes)
    assert answer.fits == (answer.headroom_bytes >= 0)
    assume(reserved)
    assert answer.fits == (answer.out_of_memory_at is None) == (placement.shortage is None)
    if answer.fits:
        assert answer.headroom_bytes == (capacity - 1) * MIB - reserved


MANY = st.lists(st.sampled_from([2, 3, 9, 11, 12, 21, 30]), min_size=6, max_size=12)


@pytest.mark.parametrize("conf", [None, "max_split_size_mb:20", "per_process_memory_fraction:0.9"])
@given(sizes=MANY, capacity=st.integers(10, 60))
def test_with_as_much_more_as_a_run_lacks_it_fits(
    conf: str | None, sizes: list[int], capacity: int
) -> None:
    # Each of them lives until the third after it is there.
    ops = [
        op({f"s{i}": size * MIB}, frees=f"s{i - 3}" if i >= 3 else "")
        for i, size in enumerate(sizes)
    ]
    schedule, options = build(*ops), Options(alloc_conf=conf)
    answer = fit_on(schedule, options, gpu_of(capacity))
    assume(not answer)
    assert answer.headroom_bytes < 0
    enough = limit_on(options, gpu_of(capacity)) - answer.headroom_bytes
    larger = replace(gpu_of(0), capacity_bytes=enough)
    while limit_on(options, larger) < enough:  # not more: under a larger limit it may not fit
        lacking = enough - limit_on(options, larger)
        larger = replace(larger, capacity_bytes=larger.capacity_bytes + lacking)
    assert limit_on(options, larger) == enough
    assert fit_on(schedule, options, larger)


# -- notes


def test_an_answer_that_the_context_decides_says_so() -> None:
    (note,) = fit(RUN, 52).notes  # 49 with the most context, 51 with the least, 50 are needed
    assert note == (
        "it fits where the CUDA context takes 1.00 MiB, the least that was seen, not 3.00 MiB"
    )
    assert fit(RUN, 50).notes == ()  # 49 with the least


@pytest.mark.parametrize(
    ("device", "note"),
    [
        ("A100-80GB", "with the kernels of A100-80GB (sm_80); analyze for L4 (sm_89) to have"),
        (None, "with the kernels of A100-80GB (sm_80, which was assumed); analyze for L4 (sm_89)"),
    ],
)
def test_an_answer_with_the_kernels_of_another_architecture_says_so(
    device: str | None, note: str
) -> None:
    report = report_on(RUN, device=device)
    answer = report.fits("nvidia l4")
    assert (answer.device, answer.fits) == ("L4", True)
    assert [text.startswith(note) for text in answer.notes] == [True]
    assert report.fits("A100-40GB").notes == ()


# -- the report


def test_a_report_answers_for_the_named_gpu_and_for_any() -> None:
    report = report_on(RUN, device="T4", headroom=MIB)
    t4 = devices.find("T4")
    assert list(report.fits) == ["T4"]
    assert report.fits["T4"] == report.fits("tesla t4")
    spare = t4.capacity_bytes - t4.context_bytes[1] - 50 * MIB - MIB
    assert report.fits["T4"] == Fit("T4", True, spare, None)
    assert report.peak.device_bytes == tuple(50 * MIB + size for size in t4.context_bytes)


def test_without_a_gpu_there_is_no_answer_until_one_is_asked() -> None:
    report = report_on(RUN)
    assert report.fits == {}
    assert (report.device, report.peak.device_bytes) == (None, None)
    assert report.fits("H200").device == "H200"
    with pytest.raises(UsageError, match="device 'H2000' is not a known GPU; did you mean H200"):
        report.fits("H2000")


def test_a_run_on_the_cpu_fits_on_no_gpu() -> None:
    report = report_on(RUN, target=Target.CPU)
    assert report.fits == {}
    with pytest.raises(UsageError, match="only the report of an analysis on target cuda"):
        report.fits("L4")


def test_the_json_of_answers_is_valid_and_has_no_more_than_the_design_and_notes() -> None:
    large = build(op({"a": 200 * 1024 * MIB}, source="net.py:1"))
    value = report_on(large, device="H200").to_dict()
    assert [str(error) for error in VALIDATOR.iter_errors(value)] == []
    answer = value["fits"]["H200"]
    assert answer["fits"] is False
    assert answer["out_of_memory_at"] == {
        "step": 1,
        "phase": "forward",
        "op": "aten.mm",
        "op_index": 0,
        "module": "(top level)",
        "source": "net.py:1",
        "requested_bytes": 200 * 1024 * MIB,
    }
    h200 = devices.find("H200")
    limit = h200.capacity_bytes - h200.context_bytes[1]
    assert answer["headroom_bytes"] == limit - 200 * 1024 * MIB


def test_weights_that_do_not_fit_are_valid_json_too() -> None:
    schedule = build(op(), before={"w": 200 * 1024 * MIB})
    value = report_on(schedule, device="T4").to_dict()
    assert [str(error) for error in VALIDATOR.iter_errors(value)] == []
    assert value["fits"]["T4"]["out_of_memory_at"]["op"] is None


def test_a_report_can_be_copied_and_pickled_with_its_answers() -> None:
    report = report_on(RUN, device="T4")
    for again in (copy.deepcopy(report), pickle.loads(pickle.dumps(report))):
        assert again == report
        assert again.fits("L4") == report.fits("L4")
    assert repr(report.fits) == f"Fits({dict(report.fits)!r})"
    assert report.fits != Fits()


def test_a_run_whose_expandable_segment_lacks_part_of_a_page_ends() -> None:
    """33 MiB take two pages of 20; of a GPU of 39 MiB a run has 36, which are more than 33."""
    found = fit(build(op({"x": 33 * MIB})), 39, alloc_conf="expandable_segments:True")
    assert not found.fits
    assert found.headroom_bytes == -4 * MIB
