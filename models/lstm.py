"""A language model of two LSTM layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphmem.sources.inputs import InputSpec


class LSTMModel(nn.Module):
    """Ids [B, S] -> logits [B, S, vocab]."""

    def __init__(self, vocab: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, dropout=0.1)
        self.head = nn.Linear(width, vocab)

    def forward(self, ids: Tensor) -> Tensor:
        """The logits, [B, S, vocab], of ids [B, S]."""
        states, _ = self.lstm(self.embedding(ids))
        return self.head(states)  # type: ignore[no-any-return]


def lstm(batch: int = 16, seq: int = 64) -> tuple[nn.Module, InputSpec]:
    """10,000 tokens, 512 wide, two layers."""
    return LSTMModel(10_000, 512, 2), InputSpec((batch, seq), torch.int64, high=10_000)
