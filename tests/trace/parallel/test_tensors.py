"""Tensor parallelism per rank, beside torch's own in a real run under a fake group."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import graphmem
from graphmem.errors import UsageError
from graphmem.measure.cpu import verify

WIDTH, LAYERS = 64, 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.down(torch.relu(self.up(self.norm(x))))
        return out


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(96, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return x


PLAN = {"blocks.*.up": "colwise", "blocks.*.down": "rowwise"}
TOKENS = torch.arange(64).view(2, 32)


@pytest.mark.parametrize("plan", [PLAN, {**PLAN, "embedding": "embedding_rowwise"}], ids=str)
@pytest.mark.parametrize("ranks", [2, 8])
def test_a_rank_holds_what_torchs_own_run_does(plan: dict[str, str], ranks: int) -> None:
    checked = verify(Model(), TOKENS, tp=True, tp_plan=plan, ranks=ranks)

    assert abs(checked.difference_bytes) <= 64  # scalars of the optimizer


def test_named_modules_are_divided_and_others_are_whole() -> None:
    report = graphmem.analyze(Model(), TOKENS, target="cpu", tp=True, tp_plan=PLAN, ranks=4)

    divided = (2 * 4 * WIDTH * WIDTH + 4 * WIDTH) // 4  # both matrices, and the bias of up
    whole = 2 * WIDTH + WIDTH  # the norm, and the bias of down, which is added once
    assert report.breakdown["parameters"] == (96 * WIDTH + LAYERS * (divided + whole)) * 4


def test_shards_are_stepped_one_by_one_on_cuda() -> None:
    """torch.optim's own choice: a DTensor is none of the types that foreach is for."""
    report = graphmem.analyze(Model(), TOKENS, zero=3, ranks=2, timeline=True)

    assert report.timeline is not None
    names = {point.op for point in report.timeline if point.phase == "optimizer"}
    assert names
    assert not any("_foreach_" in name for name in names)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (None, "Model has no plan of its own; add tp-plan"),
        ("blocks.*.up", "is not PATTERN=STYLE"),
        ("blocks.*.up=colwse", "did you mean 'colwise'"),
        ("block.*.up=colwise", r"the nearest are blocks\.\*\.up"),
        ("blocks.*.norm=colwise", "tp-plan"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line(plan: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        graphmem.analyze(Model(), TOKENS, tp=True, ranks=2, tp_plan=plan)
