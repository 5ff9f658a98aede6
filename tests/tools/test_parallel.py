"""tools/parallel.py: rows of the page, for a model that can be counted by hand."""

from __future__ import annotations

from pathlib import Path

from tools.parallel import parts_line, peaks_line, simulated

MODEL = """
import torch
from torch import nn

def wide():
    layers = (nn.Linear(2048, 2048, bias=False) for _ in range(4))
    return nn.Sequential(*layers), torch.ones(1, 2048)
"""


def test_rows_say_what_a_rank_holds(tmp_path: Path) -> None:
    file = tmp_path / "wide.py"
    file.write_text(MODEL)
    reports = {
        ranks: simulated(f"{file}:wide", batch=1, seq=None, target="cpu", zero=3, ranks=ranks)
        for ranks in (1, 8)
    }

    # Four matrices of 16 MiB are 64 MiB, 0.06 GiB; an eighth is 0.01, its states are twice that.
    # One unit: all are gathered (0.06), and the gradients of all are there when they are reduced.
    assert parts_line("x", reports[8]).startswith("| x | 0.01 |")
    assert [r.breakdown["optimizer_states"] for r in reports.values()] == [
        2 * 4 * 2048 * 2048 * 4 + 4 * 4,
        2 * 2048 * 2048 // 2 * 4 + 4 * 4,
    ]
    # Not simulated, as some ways are not with all numbers of ranks: 2 and 64.
    assert peaks_line("x", reports).split(" | ")[2::2] == ["-", "- |\n"]
