"""Tests of graphmem.render.comparison."""

from __future__ import annotations

from typing import Any

import pytest

from graphmem.render.comparison import rendered
from tests.render.golden_files import check_golden

MIB = 1 << 20


def side(allocated: int, reserved: int | None, matched: int, count: int) -> dict[str, Any]:
    """One side, of requests of 1 MiB each."""
    return {
        "allocated_bytes": allocated,
        "reserved_bytes": reserved,
        "resting_bytes": allocated // 2,
        "step": 2,
        "requests": count,
        "requested_bytes": count * MIB,
        "matched_requests": matched,
        "matched_bytes": matched * MIB,
    }


def row(nbytes: int, times: int, **origin: str | None) -> dict[str, Any]:
    """Requests that one side lacks."""
    names = ("op", "module", "source", "function", "kernel", "node")
    sizes = {"bytes": nbytes, "requests": times, "largest_bytes": nbytes // times}
    return sizes | dict.fromkeys(names) | origin


RECORDED = row(64 * MIB, 2, op="aten.cudnn_convolution", kernel="run_conv_plan", source="net.py:8")
PREDICTED = row(
    24 * MIB,
    24,
    op="aten.scatter.src",
    module="model.layers.*.attention",
    source="project/models/decoder.py:108",
)


def comparison(
    recorded: dict[str, Any], predicted: dict[str, Any], steps: list[int], **rows: Any
) -> dict[str, Any]:
    """What ``Comparison.to_dict`` gives, and the file."""
    keys = ("allocated_bytes", "reserved_bytes", "resting_bytes")
    difference = {
        key: None if recorded[key] is None else recorded[key] - predicted[key] for key in keys
    }
    only = {"only_recorded": [], "only_predicted": []} | rows
    return {
        "file": "memory.pickle",
        "device": 0,
        "steps": steps,
        "recorded": recorded,
        "predicted": predicted,
        "difference": difference,
        **only,
    }


EXACT = comparison(side(8 * MIB, 20 * MIB, 9, 9), side(8 * MIB, 20 * MIB, 9, 9), [2])
DIFFERENT = comparison(
    side(900 * MIB, None, 999, 1001),
    side(880 * MIB, 1000 * MIB, 999, 1023),
    [0, 1, 2, 2, 2],
    only_recorded=[RECORDED, *[row(2 * MIB, 1, node="MulBackward0")] * 3],
    only_predicted=[PREDICTED],
)


def test_an_exact_prediction_is_all_matched() -> None:
    check_golden("comparison_exact.txt", rendered(EXACT, "table"))


@pytest.mark.parametrize(("kind", "suffix"), [("table", "txt"), ("markdown", "md")])
def test_what_differs_is_listed_the_most_bytes_first(kind: str, suffix: str) -> None:
    check_golden(f"comparison.{suffix}", rendered(DIFFERENT, kind, 2))


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([1], "step 1"),
        ([1, 2], "step 1 and step 2"),
        ([0, 1, 2], "loading, step 1 and step 2"),
        ([2, 2, 2], "3 times step 2"),
        ([1, 2, 2], "step 1 and 2 times step 2"),
    ],
)
def test_the_matched_steps_are_told(steps: list[int], text: str) -> None:
    assert f"Matched with {text} of the prediction" in rendered(EXACT | {"steps": steps}, "table")


def test_nearly_all_is_not_told_as_all() -> None:
    nearly = comparison(side(1, 1, 9999, 10_000), side(1, 1, 9999, 9999), [1])
    text = " ".join(rendered(nearly, "table").split())
    assert "9,999 of 10,000 recorded requests (over 99.9% of their bytes)" in text
    assert "all 9,999 predicted requests" in text
