"""Multi-layer perceptrons: with and without residual connections."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphmem.sources.inputs import InputSpec

WIDTH = 512
HIDDEN = 2_048
BLOCKS = 8


class ResidualBlock(nn.Module):
    """x + MLP(norm(x)): two gradients meet at its input."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.act = nn.GELU()
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """The block on x, [B, width]."""
        y: Tensor = self.down(self.act(self.up(self.norm(x))))
        return x + y


def residual_mlp(batch: int = 256) -> tuple[nn.Module, InputSpec]:
    """Eight residual blocks on [batch, 512]."""
    blocks = (ResidualBlock(WIDTH, HIDDEN) for _ in range(BLOCKS))
    return nn.Sequential(*blocks), InputSpec((batch, WIDTH))


def plain_mlp(batch: int = 256) -> tuple[nn.Module, InputSpec]:
    """Linear layers with ReLU in between, on [batch, 512]."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((WIDTH, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, HIDDEN)):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(HIDDEN, 10)), InputSpec((batch, WIDTH), torch.float32)
