"""The run behind a report: it adds up to the report's numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import nn

import graphmem
from graphmem.errors import ModelLoadError, UsageError
from graphmem.report import Report, read_report
from graphmem.report.history import Action


@pytest.fixture(scope="module", params=[{}, {"device": "T4"}, {"target": "cpu"}], ids=str)
def report(request: pytest.FixtureRequest) -> Report:
    model = nn.Sequential(nn.Linear(100, 1000), nn.ReLU(), nn.Linear(1000, 10))
    return graphmem.analyze(model, torch.zeros(64, 100), **request.param)


def test_the_categories_at_the_peak_are_the_breakdown(report: Report) -> None:
    history = report.history
    at = history.peak_index
    assert at == report.peak.op_index
    assert {name: values[at] for name, values in history.categories.items()} == report.breakdown


def test_the_categories_add_up_to_what_is_allocated_at_every_moment(report: Report) -> None:
    history = report.history
    for moment in history.moments:
        parts = [values[moment.index] for values in history.categories.values()]
        assert sum(parts) == moment.allocated_bytes
        assert min(parts) >= 0


def test_the_live_tensors_and_scratch_of_every_moment_are_what_is_allocated(
    report: Report,
) -> None:
    history = report.history
    for moment in history.moments:
        live = sum(
            t.bytes
            for t in history.tensors
            if t.born <= moment.index and (t.freed is None or t.freed >= moment.index)
        )
        assert live + moment.scratch_bytes == moment.allocated_bytes


def test_the_segments_at_the_peak_hold_what_the_report_says() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.LazyLinear(10))
    report = graphmem.analyze(model, torch.zeros(16, 3, 64, 64))
    memory = report.history.memory
    assert memory is not None
    pieces = [piece for segment in memory.segments for piece in segment.pieces]
    assert sum(p.bytes for p in pieces if not p.is_free) == report.peak.allocated_bytes
    for segment in memory.segments:
        assert sum(piece.bytes for piece in segment.pieces) == segment.bytes
    held = [p.tensor for p in pieces if p.tensor is not None]
    assert sorted(held) == sorted(set(held))


@pytest.mark.parametrize("conf", [None, "expandable_segments:True"])
def test_the_events_lead_to_the_same_peaks(conf: str | None) -> None:
    model = nn.Sequential(nn.Linear(1000, 1000), nn.ReLU(), nn.Linear(1000, 1000))
    report = graphmem.analyze(model, torch.zeros(640, 1000), alloc_conf=conf)
    memory = report.history.memory
    assert memory is not None
    signs = {
        Action.ALLOC: (1, 0),
        Action.FREE: (-1, 0),
        Action.SEGMENT_ALLOC: (0, 1),
        Action.SEGMENT_MAP: (0, 1),
        Action.SEGMENT_FREE: (0, -1),
        Action.SEGMENT_UNMAP: (0, -1),
    }
    allocated = reserved = most_allocated = most_reserved = 0
    for event in memory.events:
        block, segment = signs[event.action]
        allocated += block * event.bytes
        reserved += segment * event.bytes
        most_allocated, most_reserved = max(most_allocated, allocated), max(most_reserved, reserved)
    assert most_allocated == report.peak.allocated_bytes
    assert most_reserved == report.peak.reserved_bytes
    assert reserved == sum(segment.bytes for segment in memory.last)


def test_a_report_that_was_read_from_a_file_is_the_same_and_has_no_history(report: Report) -> None:
    read = read_report(json.dumps(report.to_dict()), "old.json")
    assert read == report
    assert read.to_dict() == report.to_dict()
    with pytest.raises(UsageError, match="read from a file"):
        _ = read.history


def _changed(report: Report, **changes: Any) -> str:
    return json.dumps({**report.to_dict(), **changes})


def test_a_report_of_a_later_minor_version_is_read(report: Report) -> None:
    assert read_report(_changed(report, schema="graphmem.report/1.2", new=[1]), "x") == report


def test_a_report_without_what_an_older_version_did_not_have_is_read(report: Report) -> None:
    values = report.to_dict()
    for key in ("kernels", "growth", "copies"):
        del values[key]
    assert read_report(json.dumps(values), "x").growth == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "x.json: not JSON"),
        ("[]", "x.json: not a report of graphmem; graphmem analyze SUBJECT -o report.json"),
        ('{"schema": "other/1"}', "x.json: not a report of graphmem"),
        ('{"schema": "graphmem.report/2"}', "of schema graphmem.report/2, and this version of"),
        ('{"schema": "graphmem.report/1"}', "x.json: subject: expected a value, found null"),
        ('{"schema": "graphmem.report/1", "subject": 3}', "subject: expected an object, found 3"),
    ],
)
def test_what_is_no_report_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        read_report(text, "x.json")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_value_of_another_type_is_named_by_its_key(report: Report) -> None:
    values = report.to_dict()
    values["peak"]["allocated_bytes"] = "much"
    with pytest.raises(ModelLoadError, match=r"peak\.allocated_bytes: expected a whole number"):
        read_report(json.dumps(values), "x.json")
    values = report.to_dict()
    values["layers"][0]["calls"] = None
    with pytest.raises(ModelLoadError, match=r"layers\[0\]\.calls: expected a whole number"):
        read_report(json.dumps(values), "x.json")
