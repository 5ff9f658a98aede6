"""Tests of graphmem.render.verification."""

from __future__ import annotations

import json
from typing import Any

import pytest

from graphmem.render.verification import rendered

ALLOCATED = "allocated, not predicted"
PREDICTED = "predicted, not allocated"

EXPLAINED = "without what the real kernels allocate for themselves the peaks are equal."


def verification(
    predicted: int, measured: int, unexplained: int, *rows: tuple[str, str, int, int, int]
) -> dict[str, Any]:
    """What ``Verification.to_dict`` gives; rows of operator, kind, count and two sizes."""
    keys = ("operator", "kind", "count", "bytes", "bytes_at_peak")
    return {
        "predicted": {"peak_bytes": predicted},
        "measured": {"peak_bytes": measured},
        "difference": {"peak_bytes": measured - predicted, "unexplained_bytes": unexplained},
        "explained": [dict(zip(keys, row, strict=True)) for row in rows],
    }


EXACT = verification(2048, 2048, 0)
WITH_SCRATCH = verification(
    1_048_576,  # 1 MiB
    1_050_112,  # 1536 B more
    0,
    ("aten::sort", ALLOCATED, 3, 4096, 1024),
    ("aten::mm", PREDICTED, 1, 512, 512),
    ("aten::sum", ALLOCATED, 7, 9999, 0),
)


def paragraphs(text: str) -> list[str]:
    """The parts of a text between empty lines; there is no line after the last."""
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    return text.removesuffix("\n").split("\n\n")


def test_an_exact_prediction_is_two_equal_peaks() -> None:
    assert rendered(EXACT, "models/mlp.py:mlp", "table") == (
        "models/mlp.py:mlp\n"
        "\n"
        "                  bytes\n"
        "--------------  -------  --------\n"
        "predicted peak    2,048  2.00 KiB\n"
        "measured peak     2,048  2.00 KiB\n"
        "difference            0       0 B\n"
        "\n"
        "The prediction is exact.\n"
    )


def test_what_kernels_allocate_for_themselves_is_listed_by_operator() -> None:
    assert rendered(WITH_SCRATCH, "net", "table") == (
        "net\n"
        "\n"
        "                    bytes\n"
        "--------------  ---------  --------\n"
        "predicted peak  1,048,576  1.00 MiB\n"
        "measured peak   1,050,112  1.00 MiB\n"
        "difference          1,536  1.50 KiB\n"
        "\n"
        f"The difference of 1,536 bytes is explained: {EXPLAINED}\n"
        "\n"
        "operator                                times    bytes at the peak\n"
        "----------  ------------------------  -------  -------------------\n"
        "aten::sort  allocated, not predicted        3                1,024\n"
        "aten::mm    predicted, not allocated        1                  512\n"
    )


def test_markdown_has_a_heading_and_tables() -> None:
    assert rendered(WITH_SCRATCH, "net", "markdown") == (
        "## net\n"
        "\n"
        "|                |     bytes |          |\n"
        "|----------------|-----------|----------|\n"
        "| predicted peak | 1,048,576 | 1.00 MiB |\n"
        "| measured peak  | 1,050,112 | 1.00 MiB |\n"
        "| difference     |     1,536 | 1.50 KiB |\n"
        "\n"
        f"The difference of 1,536 bytes is explained: {EXPLAINED}\n"
        "\n"
        "| operator   |                          |   times |   bytes at the peak |\n"
        "|------------|--------------------------|---------|---------------------|\n"
        "| aten::sort | allocated, not predicted |       3 |               1,024 |\n"
        "| aten::mm   | predicted, not allocated |       1 |                 512 |\n"
    )


@pytest.mark.parametrize("value", [EXACT, WITH_SCRATCH], ids=["exact", "with scratch"])
def test_json_is_the_verification_itself(value: dict[str, Any]) -> None:
    text = rendered(value, "net", "json")
    assert json.loads(text) == value
    assert text.startswith('{\n  "predicted": {\n    "peak_bytes": ')
    assert text.endswith("\n}\n")


@pytest.mark.parametrize("kind", ["table", "markdown"])
@pytest.mark.parametrize(
    ("predicted", "measured", "unexplained", "verdict"),
    [
        (1000, 1000, 0, "The prediction is exact."),
        (1000, 5096, 0, f"The difference of 4,096 bytes is explained: {EXPLAINED}"),
        (5096, 1000, 0, f"The difference of -4,096 bytes is explained: {EXPLAINED}"),
        (1000, 5096, 2000, "2,000 bytes of the difference are not explained by any operator."),
        (1000, 5096, 4096, "4,096 bytes of the difference are not explained by any operator."),
        (5096, 1000, -64, "-64 bytes of the difference are not explained by any operator."),
    ],
)
def test_the_verdict_tells_what_of_the_difference_is_explained(
    kind: str, predicted: int, measured: int, unexplained: int, verdict: str
) -> None:
    text = rendered(verification(predicted, measured, unexplained), "net", kind)
    assert paragraphs(text)[2:] == [verdict]


@pytest.mark.parametrize("kind", ["table", "markdown"])
def test_scratch_that_is_not_live_at_the_peak_is_not_shown(kind: str) -> None:
    elsewhere = ("aten::sum", ALLOCATED, 7, 9999, 0)
    at_peak = ("aten::mm", ALLOCATED, 1, 512, 512)

    without = rendered(verification(8, 8, 0, elsewhere), "net", kind)
    one = rendered(verification(8, 8, 0, elsewhere, at_peak), "net", kind)

    assert len(paragraphs(without)) == 3  # heading, peaks, verdict
    assert len(paragraphs(one)) == 4
    assert "aten::mm" in one
    assert "aten::sum" not in without + one


def test_a_name_that_looks_like_a_number_stays_a_name() -> None:
    row = ("1e5", ALLOCATED, 1, 8, 8)
    assert "\n1e5 " in rendered(verification(8, 16, 0, row), "net", "table")
