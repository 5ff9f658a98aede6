"""Tests of the report's JSON against its published schema."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from graphmem.render import as_json
from graphmem.report import BREAKDOWN, SCHEMA, Report, json_schema
from tests.render.samples import inference_report, training_report

LARGE = training_report(blocks=1)
SAMPLES = [replace(LARGE, layers=LARGE.layers[:2], holders=LARGE.holders[:2]), inference_report()]
VALIDATOR = Draft202012Validator(json_schema())
Path = tuple[str | int, ...]


def is_valid(value: Any) -> bool:
    return bool(VALIDATOR.is_valid(value))


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of everything within a JSON value, except for the open options."""
    if path:
        yield path
    if path != ("created_from",):
        children = value if isinstance(value, dict) else dict(enumerate(listed(value)))
        for key, child in children.items():
            yield from paths(child, (*path, key))


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(json_schema())
    assert json_schema()["properties"]["schema"] == {"const": SCHEMA}


@pytest.mark.parametrize("report", [*SAMPLES, LARGE])
def test_a_report_is_valid(report: Report) -> None:
    errors = [str(e) for e in VALIDATOR.iter_errors(report.to_dict())]
    assert errors == []


def test_the_text_is_the_dictionary_indented_by_two_with_a_newline_at_its_end() -> None:
    report = SAMPLES[0]
    text = as_json(report)
    assert json.loads(text) == report.to_dict()
    assert text.startswith('{\n  "schema": "graphmem.report/1",\n')
    assert text.endswith("}\n")
    assert not text.endswith("\n\n")


def test_the_schema_names_every_category_and_every_field_of_a_report() -> None:
    schema = json_schema()
    assert tuple(schema["$defs"]["breakdown"]["required"]) == BREAKDOWN
    names = {field.name for field in fields(Report)} - {"ask_history"} | {"schema"}
    assert set(schema["properties"]) == names | {"comparison"}  # beside a report, not in it
    asked_for = {"timeline", "arena", "compiled", "recomputation", "host"}
    assert set(schema["required"]) == names - asked_for


@pytest.mark.parametrize("report", SAMPLES)
def test_a_missing_field_is_an_error(report: Report) -> None:
    value = report.to_dict()
    for path in paths(value):
        *parent, key = path
        if path in (("timeline",), ("compiled",)) or parent == ["fits"] or isinstance(key, int):
            continue
        broken = copy.deepcopy(value)
        del at(broken, tuple(parent))[key]
        assert not is_valid(broken), f"without {path}"


@pytest.mark.parametrize("report", SAMPLES)
def test_a_field_that_the_schema_does_not_know_is_an_error(report: Report) -> None:
    value = report.to_dict()
    objects = [p for p in ((), *paths(value)) if isinstance(at(value, p), dict)]
    for path in objects:
        if path != ("created_from",):
            broken = copy.deepcopy(value)
            at(broken, path)["surplus"] = 1
            assert not is_valid(broken), f"with a surplus field in {path}"


@pytest.mark.parametrize("wrong", [1.5, True, {"no": 1}, [[]]], ids=repr)
@pytest.mark.parametrize("report", SAMPLES)
def test_a_value_of_another_type_is_an_error(report: Report, wrong: Any) -> None:
    value = report.to_dict()
    for path in paths(value):
        if path == ("created_from",) and isinstance(wrong, dict):
            continue
        if wrong is True and path[-1] == "fits" and len(path) > 1:
            continue
        broken = copy.deepcopy(value)
        at(broken, path[:-1])[path[-1]] = wrong
        assert not is_valid(broken), f"with {wrong!r} as {path}"


@pytest.mark.parametrize("report", SAMPLES)
def test_negative_bytes_are_an_error(report: Report) -> None:
    value = report.to_dict()
    for path in paths(value):
        if str(path[-1]).endswith("bytes") and path[-1] not in ("headroom_bytes", "device_bytes"):
            broken = copy.deepcopy(value)
            at(broken, path[:-1])[path[-1]] = -1
            assert not is_valid(broken), f"with -1 as {path}"


NULLABLE = {
    "device",
    "peak.reserved_bytes",
    "peak.device_bytes",
    "peak.source",
    "steps.*.reserved_bytes",
    "steps.*.phases.forward",
    "steps.*.phases.backward",
    "steps.*.phases.optimizer",
    "layers.*.forward_peak_bytes",
    "layers.*.backward_peak_bytes",
    "holders.*.op",
    "holders.*.source",
    "holders.*.freed",
    "growth.*.holder",
    "growth.*.op",
    "growth.*.source",
    "compiled.reserved_bytes",
    "compiled.source",
    "copies.*.holder",
    "copies.*.source",
    "timeline.*.reserved_bytes",
    "fits.H200.out_of_memory_at",
    "fits.RTX 3080.out_of_memory_at",
    "fits.RTX 3080.out_of_memory_at.step",
    "fits.RTX 3080.out_of_memory_at.phase",
    "fits.RTX 3080.out_of_memory_at.op",
    "fits.RTX 3080.out_of_memory_at.source",
    "unknown.*.bytes",
}


def test_null_stands_for_what_is_not_known_and_nowhere_else() -> None:
    value = SAMPLES[0].to_dict()
    found = set()
    for path in paths(value):
        changed = copy.deepcopy(value)
        at(changed, path[:-1])[path[-1]] = None
        if is_valid(changed):
            found.add(".".join("*" if isinstance(key, int) else key for key in path))
    assert found == NULLABLE


def test_the_timeline_is_left_out_where_there_is_none() -> None:
    assert "timeline" not in inference_report().to_dict()
    assert "timeline" in SAMPLES[0].to_dict()
    assert is_valid(replace(SAMPLES[0], timeline=None).to_dict())
