"""Tests of graphmem.summary: every number of a report beside a recount of the schedule."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import graphmem
from graphmem.options import Options, Target
from graphmem.report import (
    BREAKDOWN,
    Layer,
    Report,
    Step,
    Subject,
    UnknownItem,
    json_schema,
)
from graphmem.schedule import (
    BEFORE,
    TOP_LEVEL,
    Category,
    Module,
    Operation,
    Phase,
    Schedule,
    Storage,
    Unknown,
)
from graphmem.summary import HOLDERS, summarize
from tests.schedules import PATHS, build, op, schedules, tensor

TARGETS = st.sampled_from((Target.CUDA, Target.CPU))  # ONNX Runtime is given its blocks
VALIDATOR = Draft202012Validator(json_schema())
FORWARD, BACKWARD, OPTIMIZER = Phase


def report_on(schedule: Schedule, target: Target = Target.CUDA, **more: Any) -> Report:
    subject = Subject("module", "Net", 3, 2, ())
    return summarize(schedule, subject, Options(target=target), {"mode": "x"}, "2.13.0", **more)


def layer_of(report: Report, path: str) -> Layer:
    (found,) = [layer for layer in report.layers if layer.module == path]
    return found


# -- an independent recount


def occupied(storage: Storage, target: Target) -> int:
    """Bytes after rounding; what lies in the host's memory is no part of a GPU's."""
    off = storage.host and target is Target.CUDA
    return 0 if off else rounded(storage.nbytes, target)


def rounded(nbytes: int, target: Target) -> int:
    return nbytes if target is Target.CPU else (nbytes + 511) // 512 * 512


def scratch_of(each: Operation, target: Target) -> int:
    return max((sum(rounded(n, target) for n in stage) for stage in each.scratch), default=0)


def alive_at(schedule: Schedule, index: int) -> list[Storage]:
    """What has been allocated and not freed when an operation has its results."""
    alive = {s.id for s in schedule.storages if s.born == BEFORE}
    for each in schedule.operations[:index]:
        alive = (alive | set(each.allocates)) - set(each.frees)
    return [schedule.storages[i] for i in alive | set(schedule.operations[index].allocates)]


def recount(schedule: Schedule, target: Target) -> list[int]:
    """The bytes that are allocated while each operation runs."""
    return [
        sum(occupied(s, target) for s in alive_at(schedule, each.index)) + scratch_of(each, target)
        for each in schedule.operations
    ]


# -- the peak


@given(schedules(), TARGETS)
def test_the_peak_is_the_first_of_the_operations_with_the_most_bytes(
    schedule: Schedule, target: Target
) -> None:
    peak = report_on(schedule, target).peak

    live = recount(schedule, target)
    at = schedule.operations[live.index(max(live))]
    assert (peak.allocated_bytes, peak.op_index) == (max(live), at.index)
    assert (peak.step, peak.phase, peak.op) == (at.step, at.phase, at.target)
    assert (peak.module, peak.source) == (at.module, at.source)
    assert peak.device_bytes is None


@given(schedules(), TARGETS)
def test_freed_at_its_last_use_a_run_needs_no_more(schedule: Schedule, target: Target) -> None:
    report = report_on(schedule, target)
    assert 0 <= report.last_use_peak_bytes <= report.peak.allocated_bytes


def test_what_is_held_after_its_last_use_is_no_part_of_the_last_use_peak() -> None:
    schedule = build(
        op({"a": 512}),
        op({"b": 1024}, reads="a"),
        op({"c": 2048}, reads="b"),  # 512 + 1024 + 2048 = 3584; without a 3072
        op(frees="a b c"),
    )
    report = report_on(schedule)
    assert (report.peak.allocated_bytes, report.last_use_peak_bytes) == (3584, 3072)


def test_requested_bytes_have_their_own_peak() -> None:
    schedule = build(
        op({"large": 1000}, frees="large"),  # 1000 B in 2*512 = 1024 B
        op({"s1": 1, "s2": 2, "s3": 3}),  # 6 B in 3*512 = 1536 B
    )
    peak = report_on(schedule).peak
    assert (peak.requested_bytes, peak.allocated_bytes, peak.op_index) == (1000, 1536, 1)


# -- rounding, and the host


def test_on_cuda_each_storage_is_rounded_and_the_rest_is_slack() -> None:
    schedule = build(op({"a": 513, "empty": 0}, reads="w"), before={"w": tensor(4, *PARAMETERS)})
    report = report_on(schedule, Target.CUDA)
    assert report.peak.requested_bytes == 517  # 513 + 4
    assert report.peak.allocated_bytes == 1536  # 2*512 + 512
    assert report.breakdown == {
        **dict.fromkeys(BREAKDOWN, 0),
        "parameters": 4,
        "temporaries": 513,
        "allocator_slack": 1019,  # 1024 - 513 = 511, and 512 - 4 = 508
    }


def test_scratch_is_rounded_as_a_storage_is() -> None:
    schedule = build(op({"a": 512}, scratch=((700,),), module="fc"))
    cuda, cpu = report_on(schedule, Target.CUDA), report_on(schedule, Target.CPU)
    assert cuda.breakdown["workspaces"] == cpu.breakdown["workspaces"] == 700
    assert cuda.breakdown["allocator_slack"] == 324  # 1024 - 700
    assert cpu.breakdown["allocator_slack"] == 0
    assert layer_of(cuda, "fc").live_at_peak_bytes == 1024  # 2*512
    assert layer_of(cpu, "fc").live_at_peak_bytes == 700


def test_on_the_cpu_bytes_are_as_they_were_asked_for() -> None:
    schedule = build(op({"a": 513, "empty": 0}, reads="w"), before={"w": tensor(4, *PARAMETERS)})
    report = report_on(schedule, Target.CPU)
    assert report.peak.requested_bytes == report.peak.allocated_bytes == 517  # 513 + 4
    assert report.breakdown["allocator_slack"] == 0


PARAMETERS = (Category.PARAMETERS,)


def test_what_lies_in_host_memory_counts_on_the_cpu_and_not_on_cuda() -> None:
    schedule = build(
        op({"step": tensor(4, Category.OPTIMIZER_STATES, host=True, module="fc"), "a": 512}),
        op(reads="step", frees="a"),
    )

    cuda, cpu = report_on(schedule, Target.CUDA), report_on(schedule, Target.CPU)

    assert cuda.peak.requested_bytes == cuda.peak.allocated_bytes == 512
    assert cuda.breakdown["optimizer_states"] == cuda.breakdown["allocator_slack"] == 0
    assert [holder.bytes for holder in cuda.holders] == [512]
    assert layer_of(cuda, "fc").optimizer_bytes == 0
    assert layer_of(cuda, "fc").live_at_peak_bytes == 0
    assert cpu.peak.requested_bytes == cpu.peak.allocated_bytes == 516  # 512 + 4
    assert cpu.breakdown["optimizer_states"] == 4
    assert [holder.bytes for holder in cpu.holders] == [512, 4]
    assert layer_of(cpu, "fc").optimizer_bytes == layer_of(cpu, "fc").live_at_peak_bytes == 4


# -- the breakdown


def test_the_categories_of_a_breakdown_are_those_of_storages_and_those_of_allocators() -> None:
    assert [*dict.fromkeys((*map(str, Category), "workspaces", "allocator_slack"))] == [*BREAKDOWN]


@given(schedules(), TARGETS)
def test_the_breakdown_adds_up_to_the_peak(schedule: Schedule, target: Target) -> None:
    report = report_on(schedule, target)

    expected: Counter[str] = Counter(dict.fromkeys(BREAKDOWN, 0))
    for storage in alive_at(schedule, report.peak.op_index):
        on_device = target is Target.CPU or not storage.host
        expected[str(storage.category)] += storage.nbytes if on_device else 0
    expected["workspaces"] += schedule.operations[report.peak.op_index].scratch_bytes
    expected["allocator_slack"] = report.peak.allocated_bytes - expected.total()
    assert report.breakdown == expected
    assert tuple(report.breakdown) == BREAKDOWN
    assert sum(report.breakdown.values()) == report.peak.allocated_bytes


# -- holders


@given(schedules(), TARGETS)
def test_holders_are_all_that_occupies_bytes_at_the_peak_the_largest_first(
    schedule: Schedule, target: Target
) -> None:
    report = report_on(schedule, target)

    at = report.peak.op_index
    alive = [s for s in alive_at(schedule, at) if occupied(s, target)]
    alive.sort(key=lambda s: (-occupied(s, target), s.id))
    shown = [(h.bytes, h.born, h.last_use, h.freed) for h in report.holders]
    assert shown == [(occupied(s, target), s.born, s.last_use, s.freed) for s in alive]
    scratch = scratch_of(schedule.operations[at], target)
    assert sum(h.bytes for h in report.holders) == report.peak.allocated_bytes - scratch


def test_a_holder_tells_what_it_is_and_where_it_comes_from() -> None:
    storage = tensor(
        600,
        Category.OUTPUTS,
        shape=(3, 50),
        dtype="float32",
        op="aten.mm",
        module="fc",
        source="net.py:7",
    )  # 3*50*4 B = 600
    schedule = build(op({"out": storage}), op(reads="out"), op({"b": 512}, frees="out"))
    (out, _) = report_on(schedule).holders
    assert asdict(out) == {
        "bytes": 1024,  # 2*512
        "shape": (3, 50),
        "dtype": "float32",
        "category": "outputs",
        "op": "aten.mm",
        "module": "fc",
        "source": "net.py:7",
        "born": 0,
        "last_use": 1,
        "freed": 2,
        "idle_bytes": 1024,
    }


def test_the_smallest_beyond_a_hundred_holders_are_left_out() -> None:
    assert HOLDERS == 100
    report = report_on(build(op({f"s{n}": n for n in range(1, 103)})), Target.CPU)
    assert [h.bytes for h in report.holders] == list(range(102, 2, -1))  # not 2 and 1
    assert sum(layer.live_at_peak_bytes for layer in report.layers) == 5253  # 102*103/2


def test_idle_are_the_holders_that_no_operation_from_the_peak_on_uses() -> None:
    schedule = build(
        op({"done": 1, "used": 2, "later": 4}),
        op(reads="done"),
        op({"new": 8}, reads="used"),  # the peak: 1 + 2 + 4 + 8 = 15
        op(reads="later", frees="done used later new"),
    )
    report = report_on(schedule)
    assert report.peak.op_index == 2
    assert report.idle_bytes == 512  # done
    assert {h.last_use: h.idle_bytes for h in report.holders} == {1: 512, 2: 0, 3: 0}


@given(schedules(), TARGETS)
def test_idle_bytes_are_those_of_the_holders(schedule: Schedule, target: Target) -> None:
    report = report_on(schedule, target)
    assert report.idle_bytes == sum(h.idle_bytes for h in report.holders)
    assert all(h.idle_bytes in (0, h.bytes) for h in report.holders)


# -- steps and the timeline


@given(schedules(), TARGETS)
def test_the_peaks_of_steps_and_phases_are_the_most_of_their_operations(
    schedule: Schedule, target: Target
) -> None:
    report = report_on(schedule, target, timeline=True)

    live = list(zip(schedule.operations, recount(schedule, target), strict=True))
    numbers = sorted({each.step for each in schedule.operations})
    assert [step.step for step in report.steps] == numbers
    for step in report.steps:
        mine = [(each.phase, nbytes) for each, nbytes in live if each.step == step.step]
        assert step.allocated_bytes == max(nbytes for _, nbytes in mine)
        assert step.phases == {
            str(phase): max((nbytes for p, nbytes in mine if p is phase), default=None)
            for phase in Phase
        }
    assert max(step.allocated_bytes for step in report.steps) == report.peak.allocated_bytes
    assert report.timeline is not None
    points = [(p.index, p.phase, p.op, p.module, p.allocated_bytes) for p in report.timeline]
    assert points == [(o.index, o.phase, o.target, o.module, nbytes) for o, nbytes in live]


@given(schedules(), TARGETS)
def test_no_less_is_reserved_than_is_allocated(schedule: Schedule, target: Target) -> None:
    report = report_on(schedule, target, timeline=True)

    assert report.timeline is not None
    reserved = {p.index: p.reserved_bytes or 0 for p in report.timeline}
    if target is Target.CPU:  # of which no allocator is modelled
        assert set(reserved.values()) == {0}
    else:
        assert all(reserved[p.index] >= p.allocated_bytes for p in report.timeline)
    assert (report.peak.reserved_bytes or 0) == max(reserved.values())
    for step in report.steps:
        mine = [reserved[o.index] for o in schedule.operations if o.step == step.step]
        assert (step.reserved_bytes or 0) == max(mine)


def test_a_phase_that_a_step_does_not_have_is_none() -> None:
    schedule = build(
        op({"a": 512}, step=1, phase=FORWARD),
        op({"g": 512}, step=1, phase=BACKWARD, frees="a"),
        op(step=2, phase=OPTIMIZER, frees="g"),
    )
    assert report_on(schedule, Target.CPU).steps == (
        Step(1, 1024, None, {"forward": 512, "backward": 1024, "optimizer": None}),
        Step(2, 512, None, {"forward": None, "backward": None, "optimizer": 512}),
    )


def test_there_is_a_timeline_only_where_it_is_asked_for() -> None:
    schedule = build(op())
    assert report_on(schedule).timeline is None
    assert report_on(schedule, timeline=True).timeline is not None


# -- layers


@given(schedules(), TARGETS)
def test_layers_share_the_whole_peak_among_them(schedule: Schedule, target: Target) -> None:
    report = report_on(schedule, target)

    at = schedule.operations[report.peak.op_index]
    expected = Counter({at.module: scratch_of(at, target)})
    for storage in alive_at(schedule, at.index):
        expected[storage.module] += occupied(storage, target)
    assert {x.module: x.live_at_peak_bytes for x in report.layers if x.live_at_peak_bytes} == {
        path: nbytes for path, nbytes in expected.items() if nbytes
    }
    assert sum(x.live_at_peak_bytes for x in report.layers) == report.peak.allocated_bytes
    assert len({x.module for x in report.layers}) == len(report.layers)


@given(schedules(), TARGETS)
def test_the_peaks_of_a_layer_are_the_most_while_its_operations_run(
    schedule: Schedule, target: Target
) -> None:
    report = report_on(schedule, target)

    live = list(zip(schedule.operations, recount(schedule, target), strict=True))
    assert {each.module for each in schedule.operations} <= {x.module for x in report.layers}
    for layer in report.layers:
        mine = [(o.phase, nbytes) for o, nbytes in live if o.module == layer.module]
        forward = max((nbytes for p, nbytes in mine if p is FORWARD), default=None)
        backward = max((nbytes for p, nbytes in mine if p is BACKWARD), default=None)
        assert (layer.forward_peak_bytes, layer.backward_peak_bytes) == (forward, backward)


@given(schedules())
def test_layers_of_the_model_keep_their_order_and_come_first(schedule: Schedule) -> None:
    layers = report_on(schedule).layers
    assert [x.module for x in layers[:2]] == list(PATHS[:2])
    assert [x.type for x in layers] == ["Linear", "Linear", ""][: len(layers)]


def test_a_layer_has_what_is_known_of_its_module() -> None:
    modules = (Module("fc", "Linear", 2, 12, 48, 96), Module("idle", "Identity", 0, 0, 0, 0))
    fc, idle = report_on(build(op({"a": 8}, module="fc"), modules=modules)).layers[:2]
    assert (fc.type, fc.calls, fc.parameters) == ("Linear", 2, 12)
    assert (fc.parameter_bytes, fc.output_bytes) == (48, 96)
    assert idle == Layer("idle", "Identity", 0, 0, 0, 0, 0, 0, 0, None, None, 0)


def test_others_that_hold_save_or_run_have_a_row_after_those_of_the_model() -> None:
    schedule = build(
        op({"a": tensor(8, module="z")}, module="y", phase=OPTIMIZER),
        op({"b": tensor(8, Category.OUTPUTS, module="z", saved_by="x")}, module="y"),
        op({"g": tensor(8, Category.GRADIENTS, module="w")}, module="y", frees="g"),
        op({"peak": tensor(9999, module="z")}, module="y"),
        modules=(Module("net", "Net", 1, 0, 0, 0),),
    )
    layers = report_on(schedule, Target.CPU).layers
    assert [x.module for x in layers] == ["net", "w", "x", "y", "z"]
    assert layers[4] == Layer("z", "", 0, 0, 0, 0, 0, 0, 0, None, None, 10015)  # 8 + 8 + 9999


# -- what a layer keeps, over two steps


@pytest.mark.parametrize("target", [Target.CUDA, Target.CPU])
def test_what_a_layer_saves_counts_once_though_each_step_saves_anew(target: Target) -> None:
    def saved(nbytes: int, category: Category) -> Storage:
        return tensor(nbytes, category, module="before", saved_by="fc")

    schedule = build(
        op({"a1": saved(600, Category.SAVED_FOR_BACKWARD)}, step=1),
        op({"o1": saved(100, Category.OUTPUTS)}, step=1, frees="a1"),
        op({"a2": saved(600, Category.SAVED_FOR_BACKWARD)}, step=2),
        op({"o2": saved(100, Category.OUTPUTS)}, step=2, frees="a2 o1"),  # o2 takes its name
        before={"x": saved(30, Category.INPUTS)},
    )

    report = report_on(schedule, target)

    blocks = 1024 + 512 + 512  # of 600, 100 and 30 B
    assert layer_of(report, "fc").saved_bytes == (blocks if target is Target.CUDA else 730)
    assert layer_of(report, "before").saved_bytes == 0


@pytest.mark.parametrize("category", Category)
def test_saved_are_activations_and_neither_weights_nor_what_comes_of_them(
    category: Category,
) -> None:
    schedule = build(op({"a": tensor(8, category, saved_by="fc")}), op(frees="a"))
    rows = {x.module: x.saved_bytes for x in report_on(schedule, Target.CPU).layers}
    activation = category in (Category.SAVED_FOR_BACKWARD, Category.OUTPUTS, Category.INPUTS)
    assert rows.get("fc", 0) == (8 if activation else 0)


def test_a_gradient_counts_once_though_each_step_makes_a_new_one() -> None:
    grad = tensor(600, Category.GRADIENTS, module="fc")
    schedule = build(
        op({"g1": grad}, step=1),
        op(step=2, frees="g1"),
        op({"g2": grad}, step=2),
    )
    assert layer_of(report_on(schedule), "fc").gradient_bytes == 1024  # 2*512


def test_a_gradient_that_was_there_before_and_stays_counts() -> None:
    grad = tensor(600, Category.GRADIENTS, module="fc")
    schedule = build(op(writes="g", step=1), op(writes="g", step=2), before={"g": grad})
    assert layer_of(report_on(schedule), "fc").gradient_bytes == 1024  # 2*512


def test_optimizer_states_that_are_updated_in_place_count() -> None:
    state = tensor(600, Category.OPTIMIZER_STATES, module="fc")
    schedule = build(
        op({"m": state, "v": state}, step=1),
        op(writes="m v", step=2),
    )
    assert layer_of(report_on(schedule), "fc").optimizer_bytes == 2048  # 2 of 2*512


def test_optimizer_states_that_are_replaced_in_each_step_count_once() -> None:
    state = tensor(600, Category.OPTIMIZER_STATES, module="fc")
    schedule = build(
        op({"m1": state}, step=1),
        op({"m2": state}, reads="m1", frees="m1", step=2),
        op({"m3": state}, reads="m2", frees="m2", step=3),
    )
    assert layer_of(report_on(schedule), "fc").optimizer_bytes == 1024  # 2*512


def test_optimizer_states_that_were_there_before_count() -> None:
    state = tensor(600, Category.OPTIMIZER_STATES, module="fc")
    schedule = build(op(writes="m", step=1), op(writes="m", step=2), before={"m": state})
    assert layer_of(report_on(schedule), "fc").optimizer_bytes == 1024  # 2*512


def test_states_and_gradients_belong_to_the_layers_that_hold_them() -> None:
    schedule = build(
        op(
            {
                "g": tensor(1, Category.GRADIENTS, module="a"),
                "m": tensor(2, Category.OPTIMIZER_STATES, module="a"),
                "h": tensor(4, Category.GRADIENTS, module="b"),
            },
            module=TOP_LEVEL,
        )
    )
    report = report_on(schedule, Target.CPU)
    rows = {x.module: (x.gradient_bytes, x.optimizer_bytes) for x in report.layers}
    assert rows == {TOP_LEVEL: (0, 0), "a": (1, 2), "b": (4, 0)}


# -- the whole


@given(schedules(), TARGETS, st.booleans())
def test_the_json_of_any_report_is_valid(
    schedule: Schedule, target: Target, timeline: bool
) -> None:
    value = report_on(schedule, target, timeline=timeline).to_dict()
    assert [str(error) for error in VALIDATOR.iter_errors(value)] == []


def test_what_is_given_is_passed_on() -> None:
    schedule = build(op(), unknown=(Unknown("size", "net.0", "the largest", 8),))
    report = report_on(schedule)
    assert report.unknown == (UnknownItem("size", "net.0", "the largest", 8),)
    assert report.subject == Subject("module", "Net", 3, 2, ())
    assert report.created_from == {"mode": "x"}
    assert (report.graphmem, report.torch) == (graphmem.__version__, "2.13.0")
    assert report.device is None
    assert report.fits == {}


@pytest.mark.parametrize("category", [Category.GRADIENTS, Category.OPTIMIZER_STATES])
def test_what_was_there_before_and_is_replaced_counts_once(category: Category) -> None:
    own = tensor(600, category, module="fc")
    schedule = build(
        op({"a1": own}, frees="a0", step=1), op({"a2": own}, frees="a1", step=2), before={"a0": own}
    )
    fc = layer_of(report_on(schedule), "fc")
    assert fc.gradient_bytes + fc.optimizer_bytes == 1024  # 2*512, and not 2048


def test_a_gradient_that_is_made_anew_within_a_step_counts_once() -> None:
    own = tensor(600, Category.GRADIENTS, module="fc")
    schedule = build(op({"g1": own}), op(frees="g1"), op({"g2": own}), op(frees="g2"))
    assert layer_of(report_on(schedule), "fc").gradient_bytes == 1024
