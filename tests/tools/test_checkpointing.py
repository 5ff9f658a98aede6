"""tools/checkpointing.py: what a row of the page says, for a model that is counted by hand."""

from __future__ import annotations

import pytest
from torch import nn

from graphmem.sources import LoadedSubject, spec
from tools.checkpointing import held_after_forward, row, saving, simulated

BATCH, WIDTH, HIDDEN = 128, 64, 256


@pytest.fixture
def subject() -> LoadedSubject:
    blocks = (
        nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))
        for _ in range(4)
    )
    inputs = (spec(f"{BATCH}x{WIDTH}"),)
    return LoadedSubject("module", "blocks", nn.Sequential(*blocks), inputs, {}, real=True)


def test_what_is_held_after_forward_is_counted_by_hand(subject: LoadedSubject) -> None:
    narrow, wide = 4 * BATCH * WIDTH, 4 * BATCH * HIDDEN
    _, plain = simulated(subject, {"optimizer": "sgd"})
    # the input, four outputs and the loss; of each block gelu's input and result
    assert held_after_forward(plain) == 5 * narrow + 4 + 4 * 2 * wide
    _, every = simulated(subject, {"optimizer": "sgd", "checkpoint": "*"})
    assert held_after_forward(every) == 5 * narrow + 4


def test_a_row_has_both_savings_and_what_is_recomputed(subject: LoadedSubject) -> None:
    report, _ = simulated(subject, {"optimizer": "sgd", "checkpoint": "*"})
    text = row("every block", (2**20, 3 * 2**20), (4 * 2**20, 3 * 2**20), report)
    first, *rest = (cell.strip() for cell in text.strip("|").split("|"))
    assert first == "every block"
    assert rest[:4] == ["1", "75.0 %", "3", ""]
    # of each block's second layer nothing is computed again, as nothing of it is kept
    product = 2 * BATCH * WIDTH * HIDDEN
    step = 4 * product * 6 - product  # the first block's input takes no gradient
    again = 4 * product
    assert rest[-1] == f"{100 * again / (step + again):.1f} %"


def test_a_saving_too_small_to_show_has_no_minus() -> None:
    assert saving(10_001, 10_000) == "0.0 %"
    assert saving(10_000, 10_000) == ""
