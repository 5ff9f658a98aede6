"""Models of the zoo beside real runs: what is drawn and kept, the page, and a random sample."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tools.sweeping.families import FAMILIES
from tools.sweeping.processes import Limits
from tools.sweeping.verified import Compared, compared, compared_in, draw
from tools.sweeping.verified_page import Circumstances, page

ROOT = Path(__file__).parents[2]
AT = Circumstances(7, Limits(120.0, 4 * 2**30), "2.14.1", "AVX512", ("timm 1", "torchvision 2"))
# As predicted, off by its kernels' scratch, off by more than that.
EXACT = Compared("timm", "exact", "training", 1_000, 1_000)
SCRATCH = Compared(
    "timm", "scratch", "training", 16_000, 20_000, 200, (("aten::a", 3_990), ("b", 1))
)
OFF = Compared(
    "yolo", "off", "inference", 900, 1_000, 11, (("a", 80), ("b", 5), ("c", 3), ("d", 1))
)
LOST = Compared("timm", "lost", "training", passed_over="timeout: 2 | 1 < 3")
FAILED = Compared("timm", "failed", "training", error="KeyError: 1")

needs_timm = pytest.mark.skipif(not FAMILIES["timm"].installed, reason="timm is not installed")


def test_a_model_passes_within_one_percent_without_the_kernels_scratch() -> None:
    assert [one.passes for one in (EXACT, SCRATCH, OFF)] == [True, True, False]
    assert replace(OFF, unexplained_bytes=-10).passes
    assert not replace(OFF, unexplained_bytes=-11).passes


def test_what_fails_otherwise_than_by_a_limit_counts() -> None:
    assert not FAILED.passes
    text = page([EXACT, FAILED], AT)
    assert "1 of 2 models agree" in text
    assert "| timm | failed | training | | | | KeyError: 1 | | NO |" in text


def test_a_line_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    assert list(compared_in(file)) == []
    file.write_text("".join(one.to_line() + "\n" for one in (SCRATCH, LOST)))
    assert list(compared_in(file)) == [SCRATCH, LOST]


def test_the_page_has_the_worst_first_and_says_what_was_drawn_again() -> None:
    text = page([EXACT, LOST, SCRATCH, OFF], AT)
    assert "2 of 3 models agree" in text
    assert "--seed 7" in text
    assert "timm 1, torchvision 2" in text
    assert "more than 4 GiB of memory or 2 minutes" in text
    rows = [line for line in text.splitlines() if line.startswith(("| timm", "| yolo"))]
    assert rows == [
        "| yolo | off | inference | 900 | 1,000 | +10.00% | a 80, b 5, others 4 | 11 | +1.10% |",
        "| timm | scratch | training | 16,000 | 20,000 | +20.00% | aten::a 3,990 | 200 | +1.00% |",
        "| timm | exact | training | 1,000 | 1,000 | +0.00% |  | 0 | +0.00% |",
        "| timm | lost | training | timeout: 2 \\| 1 &lt; 3 |",
    ]


@needs_timm
def test_a_seed_repeats_what_is_drawn() -> None:
    first = draw(["timm"], 1)
    assert first == draw(["timm"], 1) != draw(["timm"], 2)
    assert len(first) == len(FAMILIES["timm"].names())
    assert {one.split("/")[1] for one in first} == {"training", "inference"}


@needs_timm
def test_what_was_compared_before_is_not_run_again() -> None:
    family, mode, name = draw(["timm"], 1)[0].split("/", 2)
    assert list(compared(["timm"], 1, 1, Limits(), done=[Compared(family, name, mode)])) == []


@needs_timm
def test_three_models_drawn_at_random_agree_with_a_real_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Small ones, so that it takes a minute. GRAPHMEM_ZOO_SEED repeats a sample."""
    seed = int(os.environ.get("GRAPHMEM_ZOO_SEED") or random.SystemRandom().randrange(10**6))
    with capsys.disabled():
        print(f"\nverified models: GRAPHMEM_ZOO_SEED={seed}")
    command = f"-m tools.zoo verify --families timm --count 3 --gib 0.5 --seed {seed} --out"
    run = subprocess.run(
        [sys.executable, *command.split(), str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 0, f"seed {seed}: {run.stdout}{run.stderr}"
    lines = (tmp_path / f"verified-{seed}.jsonl").read_text("utf-8").splitlines()
    assert sum(json.loads(line)["passed_over"] is None for line in lines) == 3
