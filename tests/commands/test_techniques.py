"""Techniques through ``main``: each reaches the run and its line in the report."""

from __future__ import annotations

import json

import pytest

from graphmem.cli import main
from graphmem.errors import ExitCode

GOOD = "tests/commands/factories.py:good"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--checkpoint", "0", "--checkpoint", "1,2"], "checkpoint 0,1,2"),
        (["--checkpoint", "*", "--checkpoint-every", "2"], "checkpoint *, checkpoint every 2"),
        (["--checkpoint", "*", "--checkpoint-save", "aten.mm"], "checkpoint save aten.mm"),
        (["--checkpoint", "2", "--checkpoint-reentrant"], "checkpoint 2, checkpoint reentrant"),
        (["--offload", "activations", "--pin-memory"], "offload activations, pin memory"),
        (["--offload", "activations,optimizer"], "offload activations,optimizer"),
        (["--optimizer-in-backward"], "optimizer in backward"),
        (["--channels-last"], "channels last"),
        (["--zero-grad", "zero"], "gradients filled with zeros"),
    ],
)
def test_a_technique_is_run_and_told(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", GOOD, *arguments]) == ExitCode.OK

    lines = " ".join(capsys.readouterr().out.split())
    assert f"{text}, 2 steps" in lines


def test_techniques_are_verified(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--checkpoint", "*", "--offload", "optimizer", "--no-foreach"]
    assert main(["verify", GOOD, *arguments, "--format", "json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["difference"]["unexplained_bytes"] <= 64


def test_a_pattern_without_a_match_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", GOOD, "--checkpoint", "layers.*"]) == ExitCode.UNUSABLE

    error = capsys.readouterr().err
    assert "checkpoint: no module's path matches 'layers.*'" in error
    assert len(error.splitlines()) == 1
