"""Tests of graphmem.diffs.compare: every part of a diff, and that its numbers add up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import graphmem
from graphmem.diffs import Change, Diff, LayerChange, Status, compare, grouped, overview
from graphmem.report import Holder, Kernel, Report, UnknownItem
from tests.diffs.reports import MIB, TOP, input_of, on, report, row, rows, stack
from tests.render.samples import inference_report, training_report

BASE = report(rows(*stack("layers", 4), "head Linear 50"))
WIDER = report(rows(*stack("layers", 4, width=150), "head Linear 50"))
RENAMED = report(rows(*stack("blocks", 4), "head Linear 50"))


def labels(diff: Diff) -> dict[str, int]:
    return {group.label: group.live.change for group in diff.groups}


def by_path(diff: Diff) -> dict[str, LayerChange]:
    return {layer.module: layer for layer in diff.layers}


@pytest.mark.parametrize("same", [BASE, training_report(blocks=2), inference_report()])
def test_nothing_differs_from_itself(same: Report) -> None:
    diff = compare(same, same)
    assert {change.change for change in (*diff.totals.values(), *diff.breakdown.values())} == {0}
    assert {layer.status for layer in diff.layers} == {Status.UNCHANGED}
    assert not diff.peak.moved
    assert (diff.groups, diff.renames, diff.differences, diff.came, diff.went) == ((),) * 5
    assert diff.summary.startswith("Peak is unchanged at ")


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (BASE, WIDER),
        (BASE, RENAMED),
        (training_report(blocks=3), training_report(blocks=2)),
        (training_report(blocks=1), inference_report()),
    ],
)
def test_layers_breakdown_and_total_tell_the_same_change(base: Report, head: Report) -> None:
    diff = compare(base, head)
    changes = [
        sum(layer.live.change for layer in diff.layers),
        sum(change.change for change in diff.breakdown.values()),
        sum(group.live.change for group in diff.groups),
        diff.allocated.change,
    ]
    assert changes == [head.peak.allocated_bytes - base.peak.allocated_bytes] * 4


def test_a_swap_of_base_and_head_turns_every_change_around() -> None:
    there, back = compare(BASE, WIDER), compare(WIDER, BASE)
    assert labels(there) == {name: -change for name, change in labels(back).items()}
    assert there.allocated == Change(back.allocated.after, back.allocated.before)


def test_blocks_that_change_alike_are_one_group() -> None:
    # 4 layers, 50 and 100 parameters more in each, of 4 B
    assert labels(compare(BASE, WIDER)) == {"layers.0-3.up": 800, "layers.0-3.down": 1600}


def test_the_one_block_that_changed_stands_alone() -> None:
    layers = [
        replace(each, saved_bytes=8) if each.module == "layers.2.up" else each
        for each in BASE.layers
    ]
    diff = compare(BASE, replace(BASE, layers=tuple(layers)))
    assert [(group.label, group.columns["saved_bytes"].change) for group in diff.groups] == [
        ("layers.2.up", 8)
    ]


def test_an_overview_has_the_depth_that_fits() -> None:
    layers = compare(BASE, WIDER).layers
    assert [group.label for group in overview(layers, 2)] == ["layers.0-3.down", "layers.0-3.up"]
    (whole,) = overview(layers, 1)
    # A place has all of its modules, also those that did not change: 4 blocks and their layers.
    assert (whole.label, whole.modules, whole.live.change) == ("layers.0-3", 12, 2400)
    assert grouped(layers, 1)[0].label == "layers"


def test_a_renamed_block_is_told_once_and_changes_nothing() -> None:
    diff = compare(BASE, RENAMED)
    (rename,) = diff.renames
    assert (rename.before, rename.after, rename.modules) == ("layers", "blocks", 13)
    assert not rename.moved
    assert diff.groups == ()
    assert by_path(diff)["blocks.3.up"].status is Status.RENAMED


def test_the_same_rename_in_every_block_is_told_once() -> None:
    base, head = (
        report(rows(*(f"h.{i}.{name} Linear 5" for i in range(12)))) for name in ("fc", "up")
    )
    (rename,) = compare(base, head).renames
    assert (rename.before, rename.after, rename.modules) == ("h.0-11.fc", "h.0-11.up", 12)


def test_layers_that_moved_on_by_one_are_told_each() -> None:
    base = report(rows("net.0 Linear 1", "net.1 Linear 2"))
    head = report(rows("net.0 Norm 7", "net.1 Linear 1", "net.2 Linear 2"))
    found = [(rename.before, rename.after) for rename in compare(base, head).renames]
    assert found == [("net.0", "net.1"), ("net.1", "net.2")]


def test_new_and_gone_subtrees_are_told_whole() -> None:
    base, head = report(rows("a Linear 1")), report(rows("a Linear 1", *stack("b", 2)))
    diff = compare(base, head)
    (new,) = diff.new
    # 2 blocks of 100 + 200 parameters, 4 B each
    assert (new.label, new.modules, new.live.after, diff.gone) == ("b", 7, 2400, ())
    assert [group.label for group in compare(head, base).gone] == ["b"]


def test_new_and_gone_layers_have_one_side() -> None:
    base = report(rows("a Linear 10", "b Conv2d 20"))
    head = report(rows("a Linear 10", "c Linear 30"))
    changes = by_path(compare(base, head))
    assert (changes["b"].status, changes["b"].live) == (Status.GONE, Change(80, None))
    assert (changes["c"].status, changes["c"].live) == (Status.NEW, Change(None, 120))


def test_a_peak_in_a_renamed_module_is_where_it_was() -> None:
    base = replace(BASE, peak=replace(BASE.peak, module="layers.3.up"))
    head = replace(RENAMED, peak=replace(RENAMED.peak, module="blocks.3.up", source="net.py:99"))
    assert not compare(base, head).peak.moved
    elsewhere = replace(head, peak=replace(head.peak, module="blocks.2.up"))
    assert compare(base, elsewhere).peak.moved


@pytest.mark.parametrize("changed", [{"phase": "backward"}, {"op": "aten.add"}])
def test_a_peak_of_another_phase_or_operator_has_moved(changed: dict[str, Any]) -> None:
    moved = compare(BASE, replace(BASE, peak=replace(BASE.peak, **changed))).peak
    assert moved.moved
    assert {name: getattr(moved.after, name) for name in changed} == changed


# -- what is not like with like


def differences(base: Report, head: Report) -> list[tuple[str, str, str | None, str | None]]:
    found = compare(base, head).differences
    return [(d.kind, d.what, d.before, d.after) for d in found]


def test_another_batch_is_told() -> None:
    subject = replace(BASE.subject, inputs=(input_of(16),))
    assert differences(BASE, replace(BASE, subject=subject)) == [
        ("input", "x", "f32[8, 16]", "f32[16, 16]")
    ]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"optimizer": "sgd"}, [("option", "optimizer", "adamw", "sgd")]),
        ({"checkpoint": "layers.*"}, [("option", "checkpoint", None, "layers.*")]),
        ({"clip_grad_norm": 1.0}, [("option", "clip grad norm", None, "1.0")]),
        ({"pin_memory": True}, [("option", "pin memory", None, "yes")]),
        # A report that was made before there was an option had its default.
        ({"accumulate": 1, "set_to_none": True, "assume": {}}, []),
    ],
)
def test_other_options_are_told(options: dict[str, Any], told: list[object]) -> None:
    head = replace(BASE, created_from={**BASE.created_from, **options})
    assert differences(BASE, head) == told


def test_another_device_is_told_once() -> None:
    found = differences(on("L4", BASE, 1), on("T4", BASE, 1))
    assert found == [("option", "device", "L4", "T4")]


def test_another_version_of_torch_and_another_kernel_are_told() -> None:
    flash = replace(BASE, kernels=(Kernel("sdpa", "flash", "the first", 4),))
    maths = replace(BASE, torch="2.14.0", kernels=(Kernel("sdpa", "math", "a mask", 2),))
    assert differences(flash, maths) == [
        ("kernel", "sdpa", "flash", "math"),
        ("version", "torch", "2.13.0", "2.14.0"),
    ]


def test_other_counts_of_parameters_are_told_in_full() -> None:
    (found,) = differences(BASE, WIDER)
    assert found == ("model", "parameters", "1.25K (1,250)", "1.85K (1,850)")


def test_what_is_trained_is_told_of_both_where_one_trains_a_part() -> None:
    subject = replace(BASE.subject, trainable_parameters=50)
    (found,) = differences(BASE, replace(BASE, subject=subject))
    assert found == ("model", "trainable parameters", "1.25K (1,250)", "50 (50)")


# -- fits


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (5 * MIB, MIB, "it still fits on L4"),
        (5 * MIB, -2 * MIB, "it no longer fits on L4, 2.00 MiB too much"),
        (-MIB, MIB, "it now fits on L4"),
        (-2 * MIB, -MIB, "it still does not fit on L4, 1.00 MiB too much"),
    ],
)
def test_whether_it_fits_is_told_of_both(before: int, after: int, says: str) -> None:
    diff = compare(on("L4", BASE, before), on("L4", BASE, after))
    (fit,) = diff.fits
    assert (fit.before, fit.after) == (before >= 0, after >= 0)
    assert fit.headroom_bytes == Change(before, after)
    assert diff.summary.endswith(f"; {says}")


def test_a_gpu_that_one_side_does_not_name_is_not_known_there() -> None:
    fits = compare(BASE, on("L4", BASE, MIB)).fits
    assert [(fit.device, fit.before, fit.after) for fit in fits] == [("L4", None, True)]


# -- holders


def holder(module: str, nbytes: int, op: str = "aten.mm") -> Holder:
    return Holder(
        bytes=nbytes,
        shape=(nbytes // 4,),
        dtype="float32",
        category="saved_for_backward",
        op=op,
        module=module,
        source="net.py:3",
        born=1,
        last_use=2,
        freed=2,
        idle_bytes=0,
    )


def holding(of: Report, *holders: Holder) -> Report:
    return replace(of, holders=holders)


def test_tensors_of_one_maker_come_and_go_together() -> None:
    small, names = holder("head", 8), [f"layers.{i}.up" for i in range(4)]
    base = holding(BASE, *(holder(name, 800) for name in names), small)
    head = holding(BASE, *(holder(name, 800, "aten.gelu") for name in names), small)
    diff = compare(base, head)
    ((came,), (went,)) = diff.came, diff.went
    assert (came.modules, came.tensors, came.bytes) == ("layers.0-3.up", 4, 3200)
    assert (came.example.op, went.example.op) == ("aten.gelu", "aten.mm")


def test_the_same_tensors_in_renamed_modules_neither_come_nor_go() -> None:
    base, head = (
        holding(BASE, holder("layers.0.up", 64)),
        holding(RENAMED, holder("blocks.0.up", 64)),
    )
    diff = compare(base, head)
    assert (diff.came, diff.went) == ((), ())


def test_a_gradient_is_the_same_whatever_made_it() -> None:
    base, head = (
        holding(BASE, replace(holder("head", 5000, op), category="gradients"))
        for op in ("aten.mm", "aten._to_copy")
    )
    diff = compare(base, head)
    assert (diff.came, diff.went) == ((), ())


def test_a_tensor_that_the_other_list_may_have_cut_off_has_not_come() -> None:
    # The base lists 800 B of a peak of 5,000: smaller ones than 400 are not on its list.
    base = holding(BASE, holder("layers.0.up", 400), holder("layers.1.up", 400))
    for nbytes, come in ((300, 0), (500, 1)):
        diff = compare(base, holding(BASE, *base.holders, holder("head", nbytes)))
        assert len(diff.came) == come


def test_a_tensor_that_grew_onto_the_list_has_not_come() -> None:
    base = holding(BASE, holder("layers.0.up", 400), holder("layers.1.up", 400))
    bigger = tuple(
        replace(each, output_bytes=128) if each.module == "head" else each for each in BASE.layers
    )
    head = replace(holding(BASE, *base.holders, holder("head", 500)), layers=bigger)
    assert compare(base, head).came == ()


# -- unknown, names, API


def test_only_new_unknowns_are_told() -> None:
    old = UnknownItem("a workspace", "head", "32 MiB", 32 * MIB)
    new = UnknownItem("a size", "layers.0.up", "all", None)
    diff = compare(replace(BASE, unknown=(old,)), replace(BASE, unknown=(old, new)))
    assert (diff.unknown.new, diff.unknown.gone) == ((new,), ())


def test_steps_that_one_side_has_alone_are_there() -> None:
    two = (BASE.steps[0], replace(BASE.steps[0], step=2))
    diff = compare(BASE, replace(BASE, steps=two))
    assert [step.step for step in diff.steps] == [1, 2]
    assert diff.steps[1].allocated_bytes.before is None


def test_reports_are_compared_from_python_and_printed() -> None:
    diff = graphmem.diff(BASE, WIDER)
    assert isinstance(diff, graphmem.Diff)
    assert str(diff).startswith(diff.summary[:60])
    assert diff.base.name == "net.py:net"


@pytest.mark.parametrize(
    ("base", "head", "begins"),
    [
        (
            BASE,
            WIDER,
            "Peak grows by 2.34 KiB (+48.0%) to 7.23 KiB, mostly parameters "
            "(+2.34 KiB), mostly in layers.0-3.down (+1.56 KiB)",
        ),
        (
            WIDER,
            BASE,
            "Peak shrinks by 2.34 KiB (-32.4%) to 4.88 KiB, mostly parameters "
            "(-2.34 KiB), mostly in layers.0-3.down (-1.56 KiB)",
        ),
        (
            report((row(TOP), *(row(name, live=100) for name in "abcd"))),
            report(
                (
                    row(TOP),
                    *(
                        row(name, live=n)
                        for name, n in zip("abcd", (180, 170, 150, 150), strict=True)
                    ),
                )
            ),
            "Peak grows by 250 B (+62.5%) to 650 B, mostly parameters (+250 B), mostly in "
            "a (+80 B) and b (+70 B)",
        ),
    ],
)
def test_the_summary_says_how_much_of_what_and_where(
    base: Report, head: Report, begins: str
) -> None:
    assert compare(base, head).summary == begins


def test_the_summary_names_what_is_not_alike() -> None:
    subject = replace(BASE.subject, inputs=(input_of(16),))
    head = replace(BASE, subject=subject, torch="2.14.0")
    assert compare(BASE, head).summary.endswith("; inputs and versions differ")


def test_an_unchanged_peak_whose_reserved_memory_grew_is_not_called_unchanged_alone() -> None:
    head = replace(BASE, peak=replace(BASE.peak, reserved_bytes=3 * MIB))
    assert "but reserved memory grows by" in compare(BASE, head).summary
