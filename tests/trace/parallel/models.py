"""A small transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, WORDS, LAYERS = 64, 500, 3
BLOCK = (2 * 2 * WIDTH, 4 * (WIDTH * WIDTH + WIDTH), 2 * 4 * WIDTH * WIDTH + 5 * WIDTH)
"""Elements of a block's norms, of its attention, and of its feed-forward layers."""
ELEMENTS = WORDS * WIDTH + LAYERS * sum(BLOCK) + 2 * WIDTH + WORDS * WIDTH


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(self.norm_1(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = heads
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(-2))
        x = x + self.down(F.gelu(self.up(self.norm_2(x))))
        return x


class Transformer(nn.Module):
    """GPT-like: an embedding, blocks, a norm and a head."""

    def __init__(self, *, tied: bool = False) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def tokens() -> Tensor:
    """A batch of 2 x 32 tokens."""
    return torch.arange(64).view(2, 32) % WORDS
