"""graphmem analyze and graphmem verify, through ``main``."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from graphmem.cli import main
from graphmem.errors import ExitCode
from graphmem.report import json_schema

GOOD = "tests/commands/factories.py:good"


def test_the_json_is_that_of_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", GOOD, "--format", "json", "--timeline"]) == ExitCode.OK

    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, json_schema())
    assert report["subject"]["kind"] == "factory"
    assert report["created_from"]["optimizer"] == "adamw"
    allocated = report["peak"]["allocated_bytes"]
    assert sum(report["breakdown"].values()) == allocated
    assert sum(layer["live_at_peak_bytes"] for layer in report["layers"]) == allocated
    assert max(point["allocated_bytes"] for point in report["timeline"]) == allocated
    assert report["timeline"][report["peak"]["op_index"]]["allocated_bytes"] == allocated


@pytest.mark.parametrize("suffix", [".txt", ".md", ".json"])
def test_the_suffix_of_the_output_decides(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"report{suffix}"

    assert main(["analyze", GOOD, "-o", str(path)]) == ExitCode.OK

    assert capsys.readouterr().out == ""
    text = path.read_text("utf-8")
    assert {".txt": "Peak ", ".md": "|", ".json": '{\n  "schema"'}[suffix] in text


def test_options_reach_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--mode", "inference", "--batch", "64", "--precision", "bf16", "--steps", "1"]

    assert main(["analyze", GOOD, *options, "--format", "json"]) == ExitCode.OK

    report = json.loads(capsys.readouterr().out)
    assert report["subject"]["inputs"] == [{"name": "input", "shape": [64, 8], "dtype": "bfloat16"}]
    assert report["breakdown"]["parameters"] == (8 * 16 + 16 + 16 * 4 + 4) * 2
    assert [step["phases"]["backward"] for step in report["steps"]] == [None]


def test_a_table_fits_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", GOOD]) == ExitCode.OK

    out = capsys.readouterr().out
    assert out.startswith("Peak ")
    assert max(len(line) for line in out.splitlines()) <= 80


def test_verify_says_that_the_peaks_are_equal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", GOOD, "--optimizer", "sgd"]) == ExitCode.OK

    assert "The prediction is exact." in capsys.readouterr().out


def test_verify_gives_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", GOOD, "--format", "json"]) == ExitCode.OK

    result = json.loads(capsys.readouterr().out)
    assert set(result) == {"predicted", "measured", "difference", "explained"}
    difference = result["measured"]["peak_bytes"] - result["predicted"]["peak_bytes"]
    assert result["difference"]["peak_bytes"] == difference
    assert abs(difference) <= 64


@pytest.mark.parametrize("arguments", [["--help"], ["analyze", "--help"], ["--version"], []])
def test_help_is_no_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == ExitCode.OK
    assert "graphmem" in capsys.readouterr().out
