"""Tests of a diff's JSON against its published schema."""

from __future__ import annotations

import copy
import json
from dataclasses import fields, replace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from graphmem.diffs import SCHEMA, Diff, compare, json_schema
from graphmem.render.diff import as_json
from graphmem.report import BREAKDOWN, Holder, UnknownItem
from tests.diffs.reports import on, report, rows, stack
from tests.render.samples import inference_report, training_report

VALIDATOR = Draft202012Validator(json_schema())

BASE = report(rows(*stack("layers", 2), "head Linear 5", "old Linear 3"))
HEAD = report(rows(*stack("blocks", 2, width=7), "head Linear 5", "new Conv2d 4"))
HOLDER = Holder(64, (16,), "float32", "temporaries", "aten.mm", "head", None, 1, 2, None, 0)
FULL = compare(
    replace(on("L4", BASE, 5), holders=(HOLDER,)),
    replace(on("T4", HEAD, -5), unknown=(UnknownItem("a size", "head", "all", None),)),
)


def every_object(value: Any) -> list[dict[str, Any]]:
    found = [value] if isinstance(value, dict) else []
    children = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        found += [each for child in children for each in every_object(child)]
    return found


def test_the_schema_is_a_schema_of_its_own() -> None:
    Draft202012Validator.check_schema(json_schema())
    assert SCHEMA == "graphmem.diff/1"
    assert json_schema()["properties"]["schema"] == {"const": SCHEMA}


@pytest.mark.parametrize(
    "diff",
    [
        FULL,
        compare(training_report(blocks=1), inference_report()),
        compare(inference_report(), inference_report()),
    ],
)
def test_a_diff_is_valid(diff: Diff) -> None:
    assert [str(error) for error in VALIDATOR.iter_errors(diff.to_dict())] == []


def test_the_text_is_the_dictionary() -> None:
    text = as_json(FULL)
    assert json.loads(text) == FULL.to_dict()
    assert text.startswith('{\n  "schema": "graphmem.diff/1",\n')
    assert text.endswith("}\n")


def test_the_schema_names_every_field_of_a_diff_and_every_category() -> None:
    names = {field.name for field in fields(Diff)} - {"came", "went"} | {"schema", "holders"}
    assert set(json_schema()["properties"]) == set(json_schema()["required"]) == names
    assert tuple(json_schema()["properties"]["breakdown"]["required"]) == BREAKDOWN


def test_a_missing_field_and_a_surplus_one_are_errors_everywhere() -> None:
    value = FULL.to_dict()
    for i, found in enumerate(every_object(value)):
        for key in found:
            if found is value["fits"] or "forward" in found:
                continue
            broken = copy.deepcopy(value)
            del every_object(broken)[i][key]
            assert not VALIDATOR.is_valid(broken), f"without {key} of {found}"
        broken = copy.deepcopy(value)
        every_object(broken)[i]["surplus"] = True
        assert not VALIDATOR.is_valid(broken), f"with a surplus in {found}"


def test_changes_are_after_less_before_and_null_where_a_side_is_not_there() -> None:
    layers = {layer["module"]: layer for layer in FULL.to_dict()["layers"]}
    # 5 parameters of 4 B before and after; 3 that are gone
    same = {"before": 20, "after": 20, "change": 0}
    assert layers["head"]["live_at_peak_bytes"] == same
    assert layers["old"]["live_at_peak_bytes"] == {"before": 12, "after": None, "change": None}
    assert (layers["old"]["status"], layers["blocks.1.up"]["status"]) == ("gone", "renamed")
    assert layers["blocks.1.up"]["before"]["module"] == "layers.1.up"
