"""The textbook's formula from numbers, and beside a simulated run."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

import graphmem
from graphmem.cli import main
from graphmem.errors import ExitCode, UsageError

LLAMA: dict[str, Any] = {
    "params": 7e9,
    "precision": "fp16",
    "optimizer": "adam",
    "batch": 4,
    "seq": 2048,
    "hidden": 4096,
    "layers": 32,
}
LLAMA_LINE = [f"--{name}={value}" for name, value in LLAMA.items()]
G = 10**9


def _bytes(made: Any) -> list[int]:
    return [term.bytes for term in made.terms]


def test_the_ledger_of_llama_7b_adds_up_to_71_gb() -> None:
    made = graphmem.estimate(**LLAMA)
    # 7e9 * 2 B twice, two states of that, 3 * 4 * 2048 * 4096 * 32 * 2 B = 6.44 GB, and
    # 0.15 * (14 + 14 + 28 + 6.44) = 9.37 GB
    assert _bytes(made) == [14 * G, 14 * G, 28 * G, 6_442_450_944, 9_366_367_641]
    assert made.total_bytes == 71_808_818_585
    assert "14 + 14 + 28 + 6 + 9 = 71 GB" in str(made)


def test_the_quick_formula_takes_temporaries_of_the_activations() -> None:
    made = graphmem.estimate(
        params="100M", optimizer="adam", layers=20, activation_bytes="50MB", temporary_share=0.8
    )
    # 100e6 * 4 B; Adam twice that; 20 * 50 MB = 1 GB, of which 0.8
    assert _bytes(made) == [4 * G // 10, 4 * G // 10, 8 * G // 10, G, 8 * G // 10]
    assert made.total_bytes == 34 * G // 10


def test_the_command_needs_no_torch_for_numbers() -> None:
    code = (
        "import sys; from graphmem.cli import main\n"
        f"assert main(['estimate', *{LLAMA_LINE!r}]) == 0\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "14 + 14 + 28 + 6 + 9 = 71 GB" in done.stdout


@pytest.mark.parametrize(
    ("given", "term", "nbytes"),
    [
        ({"optimizer": "sgd"}, 2, 0),
        ({"optimizer": "amsgrad"}, 2, 3 * 4 * 10**6),
        ({"optimizer": "sgd(momentum=0.9)"}, 2, 4 * 10**6),
        ({"optimizer": torch.optim.Adagrad}, 2, 4 * 10**6),
        ({"optimizer": "adamw8bit"}, 2, 2 * 10**6),  # two states of a byte
        ({"optimizer": "ao_adamw4bit"}, 2, 10**6),  # two of half a byte
        ({"precision": "amp-bf16"}, 0, 4 * 10**6),
        ({"precision": "amp-bf16"}, 3, 3 * 2 * 8 * 16 * 4 * 2),  # activations of 2 B
        ({"precision": "bf16", "master_weights": True}, 2, 12 * 10**6),  # copy and two states
        ({"activation_factor": "34"}, 3, 34 * 2 * 8 * 16 * 4 * 4),
        ({"activation_bytes": 100}, 3, 400),
        ({"temporary_share": "50%"}, 4, (16 * 10**6 + 3 * 2 * 8 * 16 * 4 * 4) // 2),
    ],
)
def test_a_term_by_hand(given: dict[str, Any], term: int, nbytes: int) -> None:
    small: dict[str, Any] = {"params": 10**6, "batch": 2, "seq": 8, "hidden": 16, "layers": 4}
    assert _bytes(graphmem.estimate(**{**small, **given}))[term] == nbytes


@pytest.mark.parametrize(("headroom", "spare"), [("20%", 25), (10, 10), ("1KB", 1000)])
def test_headroom_is_told_apart(headroom: int | str, spare: int) -> None:
    # 5 parameters: 4 B * (1 + 1 + 0) + 5 layers of 12 B + 0 = 100 B, which are 80 % of 125
    made = graphmem.estimate(
        params=5,
        optimizer="sgd",
        layers=5,
        activation_bytes=12,
        temporary_share=0,
        headroom=headroom,
    )
    assert (made.total_bytes, made.headroom_bytes) == (100, spare)


def test_a_model_has_its_simulated_run_beside_the_formula() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    made = graphmem.estimate(model, graphmem.spec("8x64"), optimizer="adam", target="cpu")
    # 2 * (64 * 64 + 64) = 8320 parameters; three outputs of 8 * 64 fp32 are 6144 B
    assert _bytes(made)[:4] == [33_280, 33_280, 66_560, 6144]
    simulated = made.simulated
    assert simulated is not None
    rows = {row.name: row for row in simulated.rows}
    assert rows["parameters"].at_peak_bytes == 33_280
    # the states, and a step of 4 B for each of 4 parameters
    assert rows["optimizer states"].most_bytes == 66_560 + 16
    assert sum(row.at_peak_bytes for row in simulated.rows) == simulated.allocated_bytes


def test_frozen_parameters_are_a_reason() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    model[0].requires_grad_(False)
    made = graphmem.estimate(model, graphmem.spec("8x64"), target="cpu")
    assert made.simulated is not None
    gradients = made.simulated.rows[1]
    assert gradients.why[0] == "4.16K of 8.32K parameters are trained"
    assert gradients.most_bytes == 4160 * 4


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ([], "give --params, such as 7e9, or a model"),
        (["--params", "x"], "params: 'x' is not a number such as 7e9"),
        (["--params", "0.5"], "params: '0.5' is not a whole number of 1 or more"),
        (["--params", "7e9", "--batch", "2"], "the activations need --seq, --hidden, --layers, or"),
        (["--params", "7e9", "--activation-bytes", "5MB"], "the activations need --layers"),
        (["--params", "7e9", "--optimizer", "adamm"], "did you mean 'adam'?"),
        (["--params", "7e9", "--accumulate", "2"], "--accumulate is for a simulated run"),
        (["--parms", "7e9"], "did you mean '--params'?"),
        ([*LLAMA_LINE, "--headroom", "100%"], "headroom: 100% leaves no memory"),
        ([*LLAMA_LINE, "--temporary-share=-1"], "temporary-share: '-1' is not a number"),
    ],
)
def test_a_mistake_is_one_line(
    line: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["estimate", *line]) == ExitCode.UNUSABLE
    printed = capsys.readouterr().err
    assert error in printed
    assert printed.count("\n") == 1


def test_inference_has_no_textbook() -> None:
    with pytest.raises(UsageError, match="of a training step"):
        graphmem.estimate(nn.Linear(2, 2), graphmem.spec("2x2"), mode="inference")


def test_the_json_has_every_term(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", *LLAMA_LINE, "--format", "json"]) == ExitCode.OK
    made = json.loads(capsys.readouterr().out)
    assert made["schema"] == "graphmem.estimate/1"
    assert sum(term["bytes"] for term in made["terms"]) == made["total_bytes"]
    assert made["simulated"] is None
