"""Models whose schedules depend on a size in different ways, and their traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from graphmem.fits import gpu_of
from graphmem.instantiate import Recorded
from graphmem.resolve import make_options
from graphmem.sources.inputs import InputSpec
from graphmem.trace.inputs import Call
from graphmem.trace.run import trace_model

Inputs = Callable[[int], Any]


def tracer(model: nn.Module, inputs: Inputs, **options: Any) -> Callable[[int], Recorded]:
    """A function that traces a model at a size, and counts nothing itself."""
    resolved = make_options(**options)

    def trace(size: int) -> Recorded:
        given = inputs(size)
        call: Call = (given if isinstance(given, tuple) else (given,), {})
        made = trace_model(model, call, resolved, optimizer=resolved.optimizer, evidence=True)
        return Recorded(made.schedule, made.evidence, resolved.target, gpu_of(resolved))

    return trace


def images(channels: int = 3, side: int = 16) -> Inputs:
    return lambda batch: InputSpec((batch, channels, side, side))


def rows(width: int = 8) -> Inputs:
    return lambda batch: InputSpec((batch, width))


def tokens(batch: int = 2) -> Inputs:
    return lambda seq: InputSpec((batch, seq), torch.int64, high=100)


def convnet(*, inplace: bool = True) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=inplace),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, groups=16),
        nn.Dropout(0.1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


class Attention(nn.Module):
    """Ids [B, S] -> logits; its scores are S by S where attention is not fused."""

    def __init__(self, *, masked: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, 32)
        self.qkv = nn.Linear(32, 96)
        self.head = nn.Linear(32, 100)
        self.masked = masked

    def forward(self, ids: Tensor) -> Tensor:
        batch, seq = ids.shape
        x = self.embedding(ids)
        q, k, v = self.qkv(x).view(batch, seq, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind(0)
        mask = torch.ones(seq, seq, dtype=torch.bool).tril() if self.masked else None
        made = F.scaled_dot_product_attention(q, k, v, mask, is_causal=not self.masked)
        return self.head(made.transpose(1, 2).reshape(batch, seq, 32))


class Contrastive(nn.Module):
    """Similarities of all pairs: B by B."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        return F.cross_entropy(x @ x.t(), torch.arange(len(x)))


class Branches(nn.Module):
    """More work for more than 20 rows."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        return self.linear(x.relu()) if len(x) > 20 else x


class Halves(nn.Module):
    """Keeps every other row: half of the batch, rounded up."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x[::2])


class Capped(nn.Module):
    """At most 40 rows count."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x[:40])


class Groups(nn.Module):
    """Rows in four groups: a batch that four does not divide is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.view(4, -1, 8))


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 64), nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = checkpoint(self._inner, x, use_reentrant=False)
        return made

    def _inner(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu())


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 16, 2, dropout=0.1, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.lstm(x)[0]
        return made
