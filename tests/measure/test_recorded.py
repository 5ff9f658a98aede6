"""A prediction beside snapshots: those that it made itself, altered ones, and real ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem.allocator import AllocatorSettings
from graphmem.errors import ModelLoadError
from graphmem.measure.recorded import Comparison, compare
from graphmem.options import Options
from graphmem.report import Subject
from graphmem.resolve import make_options
from graphmem.schedule import Schedule
from graphmem.snapshots import Action, DeviceTrace, Snapshot, load
from graphmem.summary import summarize
from graphmem.trace.run import trace_callable
from models.decoder import decoder_423m
from models.decoder_training import DecoderAdamW, batches, training_step
from tests.schedules import build, op
from tests.snapshots.recording import recorded

KIB = 1 << 10
MIB = 1 << 20
DEFAULT = AllocatorSettings()

# Each of 10 MiB and more, so that every block is a segment of its own, without slack.
TWO_STEPS = build(
    op({"h": 12 * MIB}, target="aten.mm", module="net.0", source="net.py:3", step=1),
    op({"y": 14 * MIB}, reads="h", frees="h", target="aten.mul.Tensor", step=1),
    op({"s": 16 * MIB}, reads="y", frees="y", target="aten.zeros_like", step=1),
    op({"i": 12 * MIB}, target="aten.mm", module="net.1", source="net.py:3", step=2),
    op(
        {"z": 14 * MIB},
        reads="i",
        frees="i",
        target="aten.mul.Tensor",
        module="net.1",
        source="net.py:4",
        scratch=((600 * KIB, 18 * MIB),),
        step=2,
    ),
    op(reads="z", frees="z", target="aten.sum", step=2),
    before={"w": 20 * MIB, "v": 22 * MIB},
)


def compared(
    trace: DeviceTrace, schedule: Schedule = TWO_STEPS, options: Options | None = None
) -> Comparison:
    subject = Subject("module", "net", 0, 0, ())
    options = options or make_options()
    report = summarize(schedule, subject, options, options.to_dict(), "2.13")
    return compare(schedule, report, DEFAULT, Snapshot((trace,), DEFAULT))


def without(trace: DeviceTrace, nbytes: int) -> DeviceTrace:
    """The trace without the last allocation of a size, and without its release."""
    entries = list(trace.entries)
    at = max(i for i, e in enumerate(entries) if (e.action, e.size) == (Action.ALLOC, nbytes))
    address = entries.pop(at).address
    for action in (Action.FREE_REQUESTED, Action.FREE_COMPLETED):
        later = (i for i in range(at, len(entries)) if entries[i].address == address)
        found = next((i for i in later if entries[i].action is action), None)
        if found is not None:
            del entries[found]
    return replace(trace, entries=tuple(entries))


# -- which steps


@pytest.mark.parametrize(
    ("steps", "warm"),
    [
        ((0, 1, 2), ()),
        ((1, 2), (0,)),
        ((1,), (0,)),
        ((2,), (0, 1)),
        ((2, 2, 2), (0, 1)),
        ((0, 1, 2, 2, 2, 2), ()),
    ],
)
@pytest.mark.parametrize("native", [True, False])
def test_the_steps_of_a_recording_are_found(
    steps: tuple[int, ...], warm: tuple[int, ...], native: bool
) -> None:
    found = compared(recorded(TWO_STEPS, steps, warm=warm, native=native))
    assert found.steps == steps
    assert found.only_recorded == found.only_predicted == ()
    for side in (found.recorded, found.predicted):
        assert side.matched_requests == side.requests > 0
        assert side.matched_bytes == side.requested_bytes


def test_of_several_devices_the_one_that_is_matched_best_is_told() -> None:
    right = replace(recorded(TWO_STEPS), device=1)
    other = build(op({"x": 7 * MIB}), before={})
    wrong = replace(recorded(other, (1,)), device=0)
    empty = DeviceTrace(2, (), ())
    subject, options = Subject("module", "net", 0, 0, ()), make_options()
    report = summarize(TWO_STEPS, subject, options, {}, "2.13")
    found = compare(TWO_STEPS, report, DEFAULT, Snapshot((wrong, right, empty), DEFAULT))
    assert (found.device, found.steps) == (1, (0, 1, 2))


def test_a_recording_without_allocations_can_not_be_compared() -> None:
    with pytest.raises(ModelLoadError, match="no allocations were recorded"):
        compared(DeviceTrace(0, (), ()))


# -- peaks


def test_peaks_and_levels_are_those_of_both_sides() -> None:
    found = compared(recorded(TWO_STEPS))
    # step 2: w, v, s; then i and z, and scratch of 600 KiB in the small pool and 18 MiB
    peak = (20 + 22 + 16 + 12 + 14 + 18) * MIB + 600 * KIB
    for side in (found.recorded, found.predicted):
        assert (side.allocated_bytes, side.resting_bytes, side.step) == (peak, 58 * MIB, 2)
        assert side.reserved_bytes == (20 + 22 + 16 + 12 + 14 + 18 + 2) * MIB
    values = found.to_dict()
    assert values["difference"] == dict.fromkeys(
        ("allocated_bytes", "reserved_bytes", "resting_bytes"), 0
    )


def test_a_peak_of_the_steps_that_were_not_recorded_does_not_count() -> None:
    found = compared(recorded(TWO_STEPS, (1,), warm=(0,)))
    assert found.predicted.allocated_bytes == (20 + 22 + 14 + 16) * MIB
    assert found.predicted.resting_bytes == found.recorded.resting_bytes == 42 * MIB
    assert found.predicted.step == found.recorded.step == 1


def test_what_a_file_without_segments_does_not_tell_is_none() -> None:
    trace = recorded(TWO_STEPS)
    driver = (Action.SEGMENT_ALLOC, Action.SEGMENT_FREE)
    entries = tuple(entry for entry in trace.entries if entry.action not in driver)
    found = compared(replace(trace, entries=entries, segments=()))
    assert found.recorded.reserved_bytes is None
    assert found.to_dict()["difference"]["reserved_bytes"] is None
    assert found.recorded.allocated_bytes == found.predicted.allocated_bytes


# -- what one side lacks


def test_a_request_that_was_not_predicted_is_told_with_its_kernel() -> None:
    bare = replace(
        TWO_STEPS, operations=tuple(replace(o, scratch=()) for o in TWO_STEPS.operations)
    )
    found = compared(recorded(TWO_STEPS), bare)
    assert found.only_predicted == ()
    (row,) = found.only_recorded
    assert (row.bytes, row.requests, row.largest_bytes) == (18 * MIB + 600 * KIB, 2, 18 * MIB)
    assert (row.origin.op, row.origin.kernel) == ("aten.mul_Tensor", "some_kernel")
    assert (row.origin.source, row.origin.function) == ("net.py:4", "forward")
    difference = found.to_dict()["difference"]
    assert difference["allocated_bytes"] == 18 * MIB + 600 * KIB


def test_a_prediction_that_was_not_recorded_is_told_with_its_module() -> None:
    trace = recorded(TWO_STEPS, (2,), warm=(0, 1))
    found = compared(without(trace, 14 * MIB))
    assert found.only_recorded == ()
    (row,) = found.only_predicted
    assert (row.bytes, row.origin.op) == (14 * MIB, "aten.mul.Tensor")
    assert (row.origin.module, row.origin.source) == ("net.*", "net.py:4")


def test_of_equal_sizes_the_operator_tells_which_is_missing() -> None:
    same = build(
        op({"a": MIB}, target="aten.mul.Scalar"),
        op({"b": MIB}, reads="a", target="aten.exp"),
        op({"c": MIB}, reads="b", target="aten.clone"),
        before={},
    )
    # As recorded, mul.Scalar has called mul.Tensor, and there was no exp.
    run = replace(
        same,
        operations=tuple(
            replace(o, target=o.target.replace("Scalar", "Tensor")) for o in same.operations
        ),
    )
    trace = recorded(run, (1,))
    entries = [entry for entry in trace.entries if "exp" not in str(entry.frames)]
    found = compared(replace(trace, entries=tuple(entries)), same)
    assert [row.origin.op for row in found.only_predicted] == ["aten.exp"]


def test_the_order_of_results_and_scratch_within_an_operator_is_no_difference() -> None:
    trace = recorded(TWO_STEPS, (2,), warm=(0, 1))
    at = {entry.size: i for i, entry in enumerate(trace.entries) if entry.action is Action.ALLOC}
    entries = list(trace.entries)
    z, first, second = at[14 * MIB], at[600 * KIB], at[18 * MIB]
    moved = [entries[i] for i in (first, second, z)]
    assert z < first < second
    entries[z], entries[first], entries[second] = moved
    found = compared(replace(trace, entries=tuple(entries)))
    assert found.only_recorded == found.only_predicted == ()


def test_scratch_that_was_not_recorded_is_told_as_such() -> None:
    trace = recorded(TWO_STEPS, (2,), warm=(0, 1))
    (row,) = compared(without(trace, 600 * KIB)).only_predicted
    assert (row.origin.op, row.origin.kernel) == ("aten.mul.Tensor", "scratch")


# -- traces of real GPUs


@pytest.fixture(scope="module")
def decoder() -> Any:
    with torch.device("meta"):
        model, _ = decoder_423m()
    return model


def test_an_inference_of_the_decoder_is_matched_wholly(truth: Path, decoder: Any) -> None:
    warm_up, last = batches(10_000, 5, 4, 128)[0], batches(10_000, 1, 4, 128)[0]

    def step() -> None:
        assert len(warm_up) == 5  # it lies on the GPU
        with torch.inference_mode():
            decoder(last[0])

    schedule = trace_callable(step, make_options(steps=2))
    (trace,) = load(truth / "snapshots" / "lm423m-ctx128-inference-fp32.pickle").devices
    found = compared(trace, schedule)
    assert found.steps == (2,)
    assert found.only_recorded == found.only_predicted == ()
    assert found.recorded.requests == 1280
    assert found.recorded.resting_bytes == found.predicted.resting_bytes == 1_703_276_544


def test_a_training_step_of_the_decoder_is_matched_nearly(truth: Path, decoder: Any) -> None:
    optimizer = DecoderAdamW(decoder.parameters())
    ids, targets = batches(10_000, 1, 4, 128)
    kept: list[Any] = []

    def step() -> None:
        optimizer.zero_grad()
        kept.clear()
        kept.append(training_step(decoder, optimizer, ids[0], targets[0]))

    schedule = trace_callable(step, make_options(steps=2))
    (trace,) = load(truth / "snapshots" / "lm423m-ctx128-train-fp32.pickle").devices
    found = compared(trace, schedule)
    assert found.steps == (2,)
    assert found.recorded.requests == 6526
    assert found.recorded.matched_bytes / found.recorded.requested_bytes > 0.999
    assert found.predicted.matched_bytes / found.predicted.requested_bytes > 0.99
    assert max((row.largest_bytes for row in found.only_recorded), default=0) <= 4096
