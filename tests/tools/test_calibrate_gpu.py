"""The calibration: its cases can be traced, its files are kept, and predictions meet them."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tools import calibrate_gpu
from tools.calibration import measure
from tools.calibration.case import Case

FILES = sorted((Path(__file__).resolve().parents[1] / "calibration").glob("*.json"))
GPU = "H100-80GB"
TOLERANCE = 0.01


def measured(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return content


def test_twenty_models_have_a_process_of_their_own_and_run_first() -> None:
    groups = calibrate_gpu.groups(None)
    alone = [names for names in groups.values() if len(names) == 1]
    assert len(alone) >= 20
    assert list(groups.values())[: len(alone)] == alone
    assert {name for names in groups.values() for name in names} == set(calibrate_gpu.all_cases())


def test_one_group_or_one_case_can_be_named() -> None:
    assert set(calibrate_gpu.groups("attention")) == {"attention"}
    assert calibrate_gpu.groups("GPT-2, fp32") == {"GPT-2, fp32": ["GPT-2, fp32"]}
    assert calibrate_gpu.groups("nothing") == {}


def test_a_dry_run_predicts_every_step_of_a_group(tmp_path: Path) -> None:
    output = tmp_path / "dry.json"
    arguments = ["--dry-run", GPU, "--only", "products", "-o", str(output)]
    assert calibrate_gpu.main(arguments) == 0
    found = measured(output)
    assert found["schema"] == calibrate_gpu.SCHEMA
    assert list(found["cases"]) == calibrate_gpu.groups("products")["products"]
    peaks = [step["allocated_bytes"] for step in found["cases"]["products: bmm"]["steps"]]
    # [64, 512, 512] fp32: two inputs and their gradients, the product, and the sum's
    # gradient, copied for cuBLAS as it is expanded; two workspaces of 32 MiB on Hopper
    assert peaks[-1] == pytest.approx(6 * 64 * 2**20 + 2 * 32 * 2**20, rel=0.001)


def test_a_case_that_fails_or_dies_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [
        '{"case": "a", "steps": []}\n{"case": "b", "error": "ImportError: timm"}\n',
        '{"case": "d", "steps": []}\n',
    ]

    class Done:
        stderr = "...\nSegmentation fault"

        def __init__(self) -> None:
            self.stdout = lines.pop(0)

    monkeypatch.setattr(subprocess, "run", lambda *_, **__: Done())
    found = list(calibrate_gpu.collect(["a", "b", "c", "d"], [], time.monotonic() + 60))
    assert [result["case"] for result in found] == ["a", "b", "c", "d"]
    assert found[2]["error"] == "the process ended: Segmentation fault"


def test_what_is_not_done_in_time_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> Any:
        expired = subprocess.TimeoutExpired("python", 1)
        expired.stdout = b'{"case": "a", "steps": []}\n'
        raise expired

    monkeypatch.setattr(subprocess, "run", run)
    found = list(calibrate_gpu.collect(["a", "b"], [], time.monotonic() + 60))
    assert [result["case"] for result in found] == ["a"]
    assert list(calibrate_gpu.collect(["a"], [], time.monotonic() - 1)) == []


def test_an_unknown_group_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert calibrate_gpu.main(["--dry-run", GPU, "--only", "nothing"]) == 2
    assert "no such group or case" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_without_a_gpu_a_line_says_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert calibrate_gpu.main([]) == 2
    assert "--dry-run" in capsys.readouterr().err


def test_a_measured_case_tells_the_peaks_of_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a GPU that is played: each step allocates 10 B more, and peaks 5 B above."""
    played = {"now": 100}

    def step() -> None:
        played["now"] += 10

    for name, value in {
        "synchronize": lambda: None,
        "empty_cache": lambda: None,
        "reset_peak_memory_stats": lambda: None,
        "memory_allocated": lambda: played["now"],
        "max_memory_allocated": lambda: played["now"] + 5,
        "max_memory_reserved": lambda: 4096,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None, raising=False)
    case = Case("played", "played", lambda device: step, 2, lambda: {"size": 7})
    assert measure.measure(case) == {
        "base_bytes": 100,
        "steps": [
            {
                "before_bytes": before,
                "allocated_bytes": before + 15,
                "reserved_bytes": 4096,
                "after_bytes": before + 10,
            }
            for before in (100, 110)
        ],
        "extra": {"size": 7},
    }


def test_the_file_is_named_after_gpu_and_torch() -> None:
    machine = {"gpu": "NVIDIA H100 80GB HBM3", "torch": "2.13.0+cu130"}
    assert calibrate_gpu.default_output(machine) == Path("nvidia-h100-80gb-hbm3-2.13.0.json")


def test_a_file_is_compared_with_the_prediction_of_its_cases() -> None:
    case = "attention: flash causal"
    steps = [{"allocated_bytes": 5}, {"allocated_bytes": 7}]
    file = {"cases": {case: {"steps": steps}, "gone": {"steps": steps}, "x": {"error": "no"}}}
    [(name, ours, theirs)] = calibrate_gpu.compare(file, GPU)
    assert (name, theirs) == (case, 7)
    assert ours > 2**20


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_predictions_meet_what_was_measured(path: Path) -> None:
    file = measured(path)
    assert file["schema"] == calibrate_gpu.SCHEMA
    wrong = [
        f"{name}: {ours:,} predicted, {theirs:,} measured"
        for name, ours, theirs in calibrate_gpu.compare(file, file["machine"]["gpu"])
        if abs(ours / theirs - 1) > TOLERANCE
    ]
    assert not wrong, "\n".join(wrong)
