"""graphmem analyze --compare, through ``main``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from graphmem.cli import main
from graphmem.errors import ExitCode
from graphmem.report import json_schema
from graphmem.schedule import Schedule
from tests.snapshots.files import written
from tests.snapshots.recording import recorded

GOOD = "tests/commands/factories.py:good"
DECODER = "models/decoder.py:decoder_423m"


def _schedule() -> Schedule:
    """What ``analyze`` predicts for GOOD."""
    from graphmem.resolve import make_options
    from graphmem.trace.run import trace_model
    from tests.commands.factories import good

    model, x = good()
    return trace_model(model, ((x,), {}), make_options(), None, "adamw").schedule


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["analyze", *arguments, "--format", "json"]) == ExitCode.OK
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, json_schema())
    return report


@pytest.mark.parametrize(
    ("steps", "warm"), [((0, 1, 2), ()), ((2,), (0, 1)), ((0, 1, 2, 2, 2), ())]
)
def test_a_prediction_is_matched_with_a_recording_of_itself(
    steps: tuple[int, ...],
    warm: tuple[int, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = written(tmp_path / "a.pickle", recorded(_schedule(), steps, warm=warm))
    report = _json(capsys, GOOD, "--compare", str(file))

    comparison = report["comparison"]
    assert (comparison["file"], comparison["device"]) == (str(file), 0)
    assert comparison["steps"] == list(steps)
    assert comparison["only_recorded"] == comparison["only_predicted"] == []
    for side in (comparison["recorded"], comparison["predicted"]):
        assert side["matched_bytes"] == side["requested_bytes"] > 0
    # Small blocks have no slack, so the file's own reckoning is that of the allocator.
    assert set(comparison["difference"].values()) == {0}
    assert comparison["predicted"]["allocated_bytes"] == report["peak"]["allocated_bytes"]


def test_a_report_alone_has_no_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    assert "comparison" not in _json(capsys, GOOD)


@pytest.mark.parametrize("suffix", [".txt", ".md"])
def test_what_differs_is_told_in_a_table(suffix: str, tmp_path: Path) -> None:
    file = written(tmp_path / "a.pickle", recorded(_schedule(), (2,), warm=(0, 1)))
    out = tmp_path / f"report{suffix}"
    arguments = ["analyze", GOOD, "--optimizer", "sgd", "--compare", str(file), "-o", str(out)]

    assert main(arguments) == ExitCode.OK

    text = out.read_text("utf-8")
    assert f"Beside {file}" in text
    assert "Recorded, not predicted" in text
    assert "aten._foreach_sqrt" in text
    assert "peak reserved" in text
    if suffix == ".txt":
        lines = [line for line in text.splitlines() if str(file) not in line]
        assert max(map(len, lines)) <= 80


def test_a_real_inference_is_matched_request_by_request(
    truth: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = truth / "snapshots" / "lm423m-ctx128-inference-fp32.pickle"
    run = ["--mode", "inference", "--grad", "inference_mode"]
    comparison = _json(capsys, DECODER, *run, "--compare", str(file))["comparison"]

    assert comparison["steps"] == [2]
    assert comparison["only_recorded"] == comparison["only_predicted"] == []
    assert comparison["recorded"]["matched_requests"] == 1280
    assert comparison["recorded"]["allocated_bytes"] == 1_738_928_128
    # The measured loop also holds the ids of five warm-up steps, the default one the last
    # step's logits: 4*128*10000*4 = 20,480,000 B, in a segment of 20 MiB that they fill.
    warm_up, logits = 5 * 4 * 128 * 8, 20 * 1024**2
    assert comparison["difference"]["resting_bytes"] == warm_up - logits


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "can't be read as a memory snapshot: the file is empty"),
        (b"\x80\x04", "can't be read as a memory snapshot: the file is cut short"),
    ],
)
def test_a_bad_file_is_refused_before_anything_is_traced(
    content: bytes, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.pickle"
    file.write_bytes(content)

    assert main(["analyze", "no/such.py:model", "--compare", str(file)]) == ExitCode.UNUSABLE

    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.strip().splitlines()
    assert f"{file}: {says}" in line


def test_a_comparison_needs_a_prediction_for_cuda(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["analyze", GOOD, "--target", "cpu", "--compare", "a.pickle"]
    assert main(arguments) == ExitCode.UNUSABLE
    assert "--compare: a snapshot is of a CUDA device" in capsys.readouterr().err
