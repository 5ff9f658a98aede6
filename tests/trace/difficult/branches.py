"""Branches on values, known and unknown."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor, nn

from tests.trace.difficult.cases import Difficult


class Masked(nn.Module):
    """Takes the short way where nothing is masked."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        if mask.all():
            return y
        return y.masked_fill(~mask.unsqueeze(-1), 0.0)


class OnActivation(nn.Module):
    """A branch on what the weights make of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.large = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        if y.mean() > 100:
            y = self.large(y)
        return y


class Guarded(nn.Module):
    """Checks its own values, as careful code does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        if torch.isnan(y).any() or torch.isinf(y).any():
            raise ValueError("diverged")
        if not torch.isfinite(y).all():
            raise ValueError("diverged")
        assert (y < 1e6).all()
        return y


class EarlyExit(nn.Module):
    """Stops at the first classifier that is sure."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
        self.heads = nn.ModuleList(nn.Linear(64, 8) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for block, head in zip(self.blocks, self.heads, strict=True):
            x = block(x).relu()
            scores: Tensor = head(x).softmax(-1)
            if scores.max().item() > 0.99:
                break
        return scores


class Halting(nn.Module):
    """Adaptive computation time: goes on while any position has not halted."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Linear(64, 64)
        self.halt = nn.Linear(64, 1)

    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros(x.shape[0], 1)
        while (total < 0.4).any():
            x = self.block(x).tanh()
            total = total + self.halt(x).sigmoid()
        return x


class ByLength(nn.Module):
    """Cuts a batch to its longest sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        y: Tensor = self.layer(x[:, : int(lengths.max())])
        return y


class StochasticDepth(nn.Module):
    """Each block is left out by chance, by Python's generator or by torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(64, 64) for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            chance = random.random() if number % 2 else torch.rand(1).item()
            if self.training and chance < 0.5:
                continue
            x = x + block(x).relu()
        return x


class DropPath(nn.Module):
    """Stochastic depth for each sample, as timm has it."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            keep = x.new_empty((x.shape[0], 1)).bernoulli_(0.8).div_(0.8)
            x = x + block(x).relu() * keep
        return x


def _rows() -> Tensor:
    return torch.randn(128, 64)


def _lengths() -> Any:
    return torch.randn(4, 32, 64), torch.tensor([5, 20, 17, 9])


DIFFICULT = (
    Difficult("a branch on a mask", Masked, lambda: (_rows(), torch.arange(128) > 5)),
    Difficult("a branch on an activation", OnActivation, _rows),
    Difficult("checks of its own values", Guarded, _rows),
    Difficult("early exit", EarlyExit, _rows),
    Difficult("a loop until all have halted", Halting, _rows),
    Difficult("item() of lengths", ByLength, _lengths),
    Difficult("stochastic depth", StochasticDepth, _rows),
    Difficult("stochastic depth per sample", DropPath, _rows),
)
