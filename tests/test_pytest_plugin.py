"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import graphmem
from graphmem.errors import UsageError

SUITE = """\
import pytest
import torch
from torch import nn


def net(width):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 64))


@pytest.mark.memory_budget("100MiB", device="T4")
def test_small(assert_fits):
    report = assert_fits(net(64), torch.zeros(8, 64), precision="amp-fp16")
    assert report.created_from["precision"] == "amp-fp16"


@pytest.mark.memory_budget("100MiB")
def test_large(assert_fits):
    assert_fits(net(65536), torch.zeros(8, 64))


@pytest.mark.memory_budget("100MiB")
def test_its_own_budget(assert_fits):
    assert_fits(net(65536), torch.zeros(8, 64), budget="10GiB")


@pytest.mark.memory_budget("100MiB")
def test_calls_nothing(assert_fits):
    pass


@pytest.mark.memory_budget("100MiB")
def test_without_the_fixture():
    pass


@pytest.mark.memory_budget("100MiB", device="T5")
def test_a_mistake(assert_fits):
    assert_fits(net(64), torch.zeros(8, 64))
"""


def test_a_suite_holds_its_models_to_their_budgets(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUITE)
    command = ["-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", "-v"]
    if not _is_installed():
        command += ["-p", "graphmem.pytest_plugin"]
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    verdicts = {
        line.split("::")[1].split()[0]: line.split()[1]
        for line in lines
        if line.startswith("test_it.py::")
    }
    assert verdicts["test_small"] == "PASSED", done.stdout
    assert verdicts["test_its_own_budget"] == "PASSED"
    assert verdicts["test_large"] == "FAILED"
    assert "over a budget of 100.00 MiB" in done.stdout
    assert "the largest holders:" in done.stdout
    assert "the test never called assert_fits" in done.stdout
    assert "the test takes no fixture assert_fits" in done.stdout
    assert "graphmem: " in done.stdout
    assert "graphmem: device 'T5' is not a known GPU" in done.stdout
    assert "analysis.py" not in done.stdout  # no traceback through graphmem


def _is_installed() -> bool:
    from importlib.metadata import entry_points

    return any(point.name == "graphmem" for point in entry_points(group="pytest11"))


def test_the_assertion_alone() -> None:
    model = nn.Linear(1000, 1000)
    report = graphmem.assert_fits(model, torch.zeros(8, 1000), budget="1GiB", device="L4")
    assert report.fits["L4"]
    with pytest.raises(AssertionError, match=r"over a budget of 1\.00 MiB"):
        graphmem.assert_fits(model, torch.zeros(8, 1000), budget="1MiB")
    with pytest.raises(UsageError, match="give budget="):
        graphmem.assert_fits(model, torch.zeros(8, 1000))
