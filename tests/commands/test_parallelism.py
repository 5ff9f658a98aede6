"""Trainings on several GPUs, through ``main``."""

from __future__ import annotations

import json

import pytest

from graphmem.cli import main
from graphmem.errors import ExitCode

GOOD = "tests/commands/factories.py:good"
ELEMENTS = 8 * 16 + 16 + 16 * 4 + 4


@pytest.mark.parametrize(
    ("options", "share"),
    [
        (["--ddp", "--ranks", "4", "--bucket-cap", "1"], 1),
        (["--zero", "1", "--ranks", "4", "--bucket-view"], 1),
        (["--zero", "2", "--ranks", "4", "--zero-bucket", "100"], 1),
        (["--zero", "3", "--ranks", "4"], 4),
        (["--fsdp", "--ranks", "2", "--fsdp-units", "0,2", "--no-fsdp-reshard"], 2),
    ],
    ids=lambda options: " ".join(options) if isinstance(options, list) else str(options),
)
def test_options_reach_the_run(
    options: list[str], share: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", GOOD, "--target", "cpu", *options, "--format", "json"]) == ExitCode.OK

    report = json.loads(capsys.readouterr().out)
    padded = -ELEMENTS % 8 if "2" in options[1] and options[0] == "--zero" else 0
    assert report["breakdown"]["parameters"] == (ELEMENTS + padded) * 4 // share
    assert report["created_from"]["ranks"] == int(options[options.index("--ranks") + 1])
    allocated = report["peak"]["allocated_bytes"]
    assert sum(layer["live_at_peak_bytes"] for layer in report["layers"]) == allocated


def test_verify_runs_under_the_same_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--target", "cpu", "--zero", "3", "--ranks", "8", "--format", "json"]

    assert main(["verify", GOOD, *options]) == ExitCode.OK

    found = json.loads(capsys.readouterr().out)
    assert found["difference"]["unexplained_bytes"] == 0


def test_a_sweep_takes_them(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--batch", "2,3,4", "--zero", "3", "--ranks", "4", "--target", "cpu"]

    assert main(["sweep", GOOD, *options, "--no-cache", "--format", "json"]) == ExitCode.OK

    cases = json.loads(capsys.readouterr().out)["cases"]
    assert [case["options"]["ranks"] for case in cases] == [4, 4, 4]
    # A sample more is, at the ReLU of the second step, an input of 8, a linear layer's result and
    # the ReLU's of 16 each, and 4 of the first step's output: 44 values of 4 B.
    first, second, third = (case["answer"]["allocated_bytes"] for case in cases)
    assert third - second == second - first == 44 * 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--zero", "4", "--ranks", "2"], "zero: the stages are 0, 1, 2 and 3, not 4"),
        (["--zero", "3", "--ranks", "0"], "ranks must be 1 or more, not 0"),
        (["--fsdp", "--ranks", "2", "--fsdp-units", "layer.*"], "no module's path matches"),
    ],
    ids=lambda options: " ".join(options) if isinstance(options, list) else "",
)
def test_a_mistake_is_one_line(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", GOOD, *options]) == ExitCode.UNUSABLE

    assert message in capsys.readouterr().err.removesuffix("\n").splitlines()[-1]
