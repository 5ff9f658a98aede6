"""Factories for the command line's tests, good and bad."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def good() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), torch.randn(2, 8)


def raises() -> nn.Module:
    raise ValueError("the weights are\nnot here")


def wrong_shape() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(8, 16), nn.Linear(32, 4)), torch.randn(2, 8)


def no_inputs() -> nn.Module:
    return nn.Bilinear(4, 4, 2)


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        y = self.layer(x)
        if mask.all():
            return y
        return y * 2


def branches() -> nn.Module:
    return Branches()


_LIBRARY = torch.library.Library("graphmem_tests", "FRAGMENT")
if not hasattr(torch.ops.graphmem_tests, "twice"):  # this file is imported for each command
    _LIBRARY.define("twice(Tensor x) -> Tensor")
    _KEPT = torch.library.Library("graphmem_tests", "IMPL")
    _KEPT.impl("twice", lambda x: x * 2, "CPU")
    torch.graphmem_tests_kept = (_LIBRARY, _KEPT)  # type: ignore[attr-defined]


class Custom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.graphmem_tests.twice(x)
        return self.layer(y)


def custom_operator() -> tuple[nn.Module, Tensor]:
    return Custom(), torch.randn(2, 8)


def frozen() -> tuple[nn.Module, Tensor]:
    return nn.Linear(8, 8).requires_grad_(False), torch.randn(2, 8)
