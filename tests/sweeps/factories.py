"""Models for sweeps: one that counts its builds, one that kills its process, and others."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor, nn

from graphmem.sources.inputs import InputSpec


def plain(batch: int = 2) -> tuple[nn.Module, InputSpec]:
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    return model, InputSpec((batch, 8))


def counted(batch: int = 2) -> tuple[nn.Module, InputSpec]:
    """Leaves a line in a file for each time that it is built."""
    with Path(os.environ["COUNTED"]).open("a") as file:
        file.write(f"{batch}\n")
    return plain(batch)


class Killer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) == 3:
            os._exit(13)
        return self.linear(x)


def killer(batch: int = 2) -> tuple[nn.Module, InputSpec]:
    return Killer(), InputSpec((batch, 8))


class Picky(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        if len(x) > 4:
            raise ValueError("four rows at most")
        return self.linear(x)


def picky(batch: int = 2) -> tuple[nn.Module, InputSpec]:
    return Picky(), InputSpec((batch, 8))


def language(batch: int = 2, seq: int = 16) -> tuple[nn.Module, InputSpec]:
    model = nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50))
    return model, InputSpec((batch, seq), torch.int64, high=50)
