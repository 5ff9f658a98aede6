"""A language model whose embedding and output layer are one table.

The table's two gradients, of the look-up and of the product, are summed in backward.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from graphmem.sources.inputs import InputSpec


class TiedLM(nn.Module):
    """Ids and targets [B, S] -> the loss."""

    def __init__(self, vocab: int, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, width // 64, 4 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, vocab, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """The mean loss of ids at targets, [B, S] each."""
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(x)  # [B, S, vocab]
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def tied_lm(batch: int = 4, seq: int = 128) -> tuple[nn.Module, dict[str, InputSpec]]:
    """16,000 tokens, 256 wide, two layers."""
    ids = InputSpec((batch, seq), torch.int64, high=16_000)
    return TiedLM(16_000, 256, 2), {"ids": ids, "targets": ids}
