"""Tests of graphmem.render.rows."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.errors import UsageError
from graphmem.render.rows import (
    automatic_depth,
    breakdown_rows,
    collapse,
    depth_of,
    holder_rows,
    layer_rows,
)
from graphmem.report import BREAKDOWN, Layer, Report
from graphmem.schedule import TOP_LEVEL
from tests.render.parts import share
from tests.render.samples import inference_report, training_report
from tests.render.strategies import layer_lists, reports

REPORTS = [training_report(), inference_report()]
ADDED = (
    "parameters",
    "parameter_bytes",
    "saved_bytes",
    "gradient_bytes",
    "optimizer_bytes",
    "live_at_peak_bytes",
)
LARGEST = ("output_bytes", "forward_peak_bytes", "backward_peak_bytes")


def layer(module: str, calls: int = 1) -> Layer:
    return share(module, "Linear", 10, calls=calls).layer


def below(layers: list[Layer], prefix: str) -> list[Layer]:
    """The layers at a path or below it: an oracle that knows nothing of depths."""
    return [each for each in layers if f"{each.module}.".startswith(f"{prefix}.")]


def test_the_names_of_all_fields_are_spoken_for() -> None:
    assert {field.name for field in fields(Layer)} == {*ADDED, *LARGEST, "module", "type", "calls"}


@given(layer_lists(), st.integers(1, 7))
def test_collapsing_conserves_every_sum_at_every_depth(layers: list[Layer], depth: int) -> None:
    rows = collapse(layers, depth)
    for name in ADDED:
        assert sum(getattr(row, name) for row in rows) == sum(
            getattr(each, name) for each in layers
        )
    for name in LARGEST:
        most = max((getattr(each, name) or 0 for each in layers), default=0)
        assert max((getattr(row, name) or 0 for row in rows), default=0) == most


@given(layer_lists(), st.integers(1, 7))
def test_a_row_of_the_full_depth_is_the_sum_of_what_is_below_it(
    layers: list[Layer], depth: int
) -> None:
    for row in collapse(layers, depth):
        members = below(layers, row.module) if depth_of(row.module) == depth else [row]
        if row.module == TOP_LEVEL:
            members = [each for each in layers if each.module == TOP_LEVEL]
        for name in ADDED:
            assert getattr(row, name) == sum(getattr(each, name) for each in members)
        for name in LARGEST:
            sizes = [getattr(each, name) for each in members]
            assert getattr(row, name) == max((s for s in sizes if s is not None), default=None)


@given(layer_lists(), st.integers(1, 7))
def test_rows_are_unique_and_no_deeper_than_asked_for(layers: list[Layer], depth: int) -> None:
    modules = [row.module for row in collapse(layers, depth)]
    assert len(set(modules)) == len(modules)
    assert all(depth_of(module) <= depth for module in modules)
    assert (TOP_LEVEL in modules) == any(each.module == TOP_LEVEL for each in layers)


def test_rows_stand_in_the_order_of_the_modules() -> None:
    layers = [layer(name) for name in ("b.1", TOP_LEVEL, "a.0", "b.0", "c")]
    assert [row.module for row in collapse(layers, 1)] == ["b", TOP_LEVEL, "a", "c"]


def test_a_prefix_with_a_row_of_its_own_keeps_its_type_and_calls() -> None:
    layers = [layer("a.0", calls=7), layer("a", calls=3), layer("b.0.x", calls=5)]
    own, other = collapse(layers, 1)
    assert (own.type, own.calls) == ("Linear", 3)
    assert (other.type, other.calls) == ("1 module", 0)  # nothing says how often b is called


def test_a_name_that_another_name_starts_with_is_not_its_prefix() -> None:
    layers = [layer("layer1.conv"), layer("layer10.conv")]
    assert [row.parameters for row in collapse(layers, 1)] == [10, 10]


@pytest.mark.parametrize(
    ("paths", "most_rows", "depth"),
    [
        (["a.0.x", "a.1.x", "b"], 3, 3),  # three rows at the full depth
        (["a.0.x", "a.0.y", "a.1.x", "b"], 3, 2),  # a.0, a.1, b
        (["a.0.x", "a.1.x", "b"], 2, 1),  # a, b
        (["a", "b", "c"], 2, 1),  # never fewer than depth 1
        ([], 2, 1),
    ],
)
def test_the_automatic_depth_is_the_largest_that_leaves_few_rows(
    paths: list[str], most_rows: int, depth: int
) -> None:
    assert automatic_depth([layer(path) for path in paths], most_rows) == depth


@given(reports(), st.none() | st.integers(1, 7))
def test_the_total_of_the_layers_is_the_peak(report: Report, depth: int | None) -> None:
    table = layer_rows(report, depth)
    assert sum(row.live_at_peak_bytes for row in table.rows) == report.peak.allocated_bytes
    assert table.total.live_at_peak_bytes == report.peak.allocated_bytes
    assert table.total.saved_bytes == sum(row.saved_bytes for row in table.rows)


@pytest.mark.parametrize("report", REPORTS)
def test_the_samples_hold_together(report: Report) -> None:
    assert sum(report.breakdown.values()) == report.peak.allocated_bytes
    assert sum(each.live_at_peak_bytes for each in report.layers) == report.peak.allocated_bytes
    assert max(step.allocated_bytes for step in report.steps) == report.peak.allocated_bytes


@pytest.mark.parametrize("report", REPORTS)
def test_the_rows_of_the_breakdown_add_up_to_the_peak(report: Report) -> None:
    table = breakdown_rows(report)
    assert sum(size for _, size in table.rows) == table.total == report.peak.allocated_bytes
    assert all(size > 0 for _, size in table.rows)
    assert sorted([*(name for name, _ in table.rows), *table.empty]) == sorted(BREAKDOWN)


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("count", [0, 1, 3, 1000])
def test_holders_and_everything_else_add_up_to_the_peak(report: Report, count: int) -> None:
    table = holder_rows(report, count)
    assert len(table.rows) == min(count, len(report.holders))
    total = sum(holder.bytes for holder in table.rows) + table.rest
    assert total == table.total == report.peak.allocated_bytes


def test_the_largest_holders_come_first() -> None:
    report = inference_report()
    turned = replace(report, holders=report.holders[::-1])
    assert holder_rows(turned, 1).rows == report.holders[:1]


def test_a_depth_or_a_number_of_holders_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(UsageError, match="--depth: 0 is below 1"):
        layer_rows(inference_report(), 0)
    with pytest.raises(UsageError, match="--holders: -1 is below 0"):
        holder_rows(inference_report(), -1)
