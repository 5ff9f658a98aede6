"""tools/optimizers.py: a row of the page, for a model that can be counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.optimizers import OPTIMIZERS, Row, line, row

MODEL = """
import torch
from torch import nn

def small(batch=2):
    return nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 32, bias=False)), torch.zeros(batch, 64)
"""
ALL = 64 * 64 + 64 + 64 * 32


@pytest.fixture
def subject(tmp_path: Path) -> str:
    file = tmp_path / "small.py"
    file.write_text(MODEL)
    return f"{file}:small"


@pytest.mark.parametrize(
    ("name", "states", "temporaries"),
    [
        ("sgd", 0, 0),
        ("sgd+momentum", 4 * ALL, 0),
        ("adamw", 8 * ALL, 4 * ALL),  # foreach: a copy of all
        ("adamw(fused=True)", 8 * ALL + 3 * 4, 0),  # and a step on the GPU for each of three
        ("amsgrad", 12 * ALL, 4 * ALL),
        ("lion", 4 * ALL, 2 * 4 * 64 * 64),  # two copies of the largest
        # the first matrix has 4,096 elements: 16 maxima, and two tables of 256 levels
        ("adamw8bit", 2 * (64 * 64 + 4 * 16) + 8 * (ALL - 64 * 64) + 2048, 0),
    ],
)
def test_a_row_by_hand(name: str, states: int, temporaries: int, subject: str) -> None:
    assert row(name, subject, batch=2, seq=None) == Row(name, 4 * ALL, states, 0, temporaries)


def test_a_line_has_a_cell_for_every_column() -> None:
    made = Row("adamw", parameters=2**20, states=2**21, temporaries=2**20)
    assert line(made) == "| `adamw` | 2.0 | 2.000 | 2 | 1.0 | torch.optim |"
    paged = Row("paged_adamw", parameters=2**20, states=0, paged=2**21)
    assert line(paged).startswith("| `paged_adamw` | 0.0 and 2.0 paged | 0.000 | 0 | 0.0 |")


def test_the_page_has_each_optimizer() -> None:
    text = Path(__file__).parents[2].joinpath("docs", "optimizers.md").read_text("utf-8")
    assert [name for name in OPTIMIZERS if f"| `{name}` |" not in text] == []
