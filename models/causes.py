"""Small models, each with its peak for another reason: the examples of docs/guide/why.md."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphmem.sources.inputs import InputSpec

Example = tuple[nn.Module, InputSpec]


class _Attention(nn.Module):
    """Attention by hand: its scores are [batch, heads, tokens, tokens]."""

    def __init__(self, width: int = 256, heads: int = 8, *, fused: bool = False) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.heads = heads
        self.fused = fused

    def forward(self, x: Tensor) -> Tensor:  # [batch, tokens, width]
        batch, tokens, width = x.shape
        parts = self.qkv(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        if self.fused:
            y = functional.scaled_dot_product_attention(q, k, v)
        else:
            y = torch.softmax(q @ k.transpose(-1, -2) / 8, dim=-1) @ v
        result: Tensor = self.out(y.transpose(1, 2).reshape(batch, tokens, width))
        return result


class _Head(nn.Module):
    """A small model with a large vocabulary: the logits are larger than all else."""

    def __init__(self, width: int = 64, vocabulary: int = 50257) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        logits = self.head(self.table(ids))
        return functional.cross_entropy(logits.flatten(0, 1), ids.flatten())


class _Keeps(nn.Module):
    """Appends each loss to a list, and with it the graph that it depends on."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.losses: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        loss: Tensor = self.net(x).square().mean()
        self.losses.append(loss)  # self.losses.append(loss.item()) keeps a number alone
        return loss


class _Averaged(nn.Module):
    """Keeps an exponential average of its weights beside them."""

    def __init__(self, width: int = 1024) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        self.average: list[Tensor] | None = None

    def forward(self, x: Tensor) -> Any:
        if self.average is None:
            self.average = [p.detach().clone() for p in self.net.parameters()]
        for mean, weight in zip(self.average, self.net.parameters(), strict=True):
            mean.lerp_(weight.detach(), 0.01)
        return self.net(x)


def scores(batch: int = 4) -> Example:
    """Attention whose scores are written out."""
    return _Attention(), InputSpec((batch, 1024, 256))


def fused_scores(batch: int = 4) -> Example:
    """The same by a fused kernel."""
    return _Attention(fused=True), InputSpec((batch, 1024, 256))


def logits(batch: int = 4) -> Example:
    """A large vocabulary."""
    return _Head(), InputSpec((batch, 512), torch.int64, high=50257)


def activations(batch: int = 4096) -> Example:
    """Many layers, each of which keeps its input for backward."""
    layers = [nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(24)]
    return nn.Sequential(*layers), InputSpec((batch, 256))


def states(batch: int = 8) -> Example:
    """Wide layers and a small batch: weights, their gradients and the optimizer's states."""
    layers = (nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 4096))
    return nn.Sequential(*layers), InputSpec((batch, 4096))


def keeps_its_losses(batch: int = 256) -> Example:
    """A list of losses that grows in every step."""
    return _Keeps(), InputSpec((batch, 512))


def averaged(batch: int = 64) -> Example:
    """An average of the weights."""
    return _Averaged(), InputSpec((batch, 1024))


def convolutions(batch: int = 8) -> Example:
    """Large images: what the convolutions' kernels take for themselves."""
    layers = (nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU())
    return nn.Sequential(*layers), InputSpec((batch, 3, 256, 256))


def uneven(batch: int = 8192) -> Example:
    """Tensors that grow from layer to layer: blocks of the smaller ones fit none of the larger."""
    widths = [64 * (i + 2) for i in range(24)]
    layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
    return nn.Sequential(*layers), InputSpec((batch, 128))
