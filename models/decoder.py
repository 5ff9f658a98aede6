"""A decoder of language, spelled out in elementary operators.

Its CUDA memory was measured in several sizes (see ``truth`` in the notes of the project),
so what is kept alive, and in which order tensors are made and let go, is part of the
definition: each local variable below lives as long as it did there. Names in comments:
B batch, S sequence, W width, H heads, D = W / H.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphmem.sources.inputs import InputSpec


@dataclass(frozen=True)
class DecoderConfig:
    """The sizes of a decoder; these defaults have 423,183,360 parameters."""

    vocab: int = 10_000
    width: int = 1_024
    blocks: int = 24
    heads: int = 16
    ff: int = 4_096
    context: int = 128


MEDIUM = DecoderConfig()
SMALL = DecoderConfig(width=768, blocks=12, heads=12, ff=3_072)
LARGE = DecoderConfig(width=1_280, blocks=36, heads=20, ff=5_120)
XL = DecoderConfig(width=1_600, blocks=48, heads=25, ff=6_400)
SIZE_2_7B = DecoderConfig(width=2_560, blocks=32, heads=32, ff=10_240)
TINY = DecoderConfig(vocab=50, width=32, blocks=2, heads=4, ff=64, context=16)


class Linear(nn.Module):
    """y = x W^T, as an einsum: [..., I] -> [..., O]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        nn.init.normal_(self.weight, std=math.sqrt(2 / (inputs + outputs)))

    def forward(self, x: Tensor) -> Tensor:
        """The product, [..., O], for x [..., I]."""
        return torch.einsum("...i,oi->...o", x, self.weight)


class Embedding(nn.Module):
    """Rows of a table, by indexing: [B, S] -> [B, S, W]."""

    def __init__(self, vocab: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab, width))
        nn.init.normal_(self.weight)

    def forward(self, ids: Tensor) -> Tensor:
        """The rows of ids, [B, S]: [B, S, W]."""
        return self.weight[ids]


class RMSNorm(nn.Module):
    """Root-mean-square normalization over the last dimension, computed in fp32."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x, [B, S, W], in its own dtype."""
        dtype = x.dtype
        x = x.to(torch.float32)
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        x = x * scale
        return (self.weight * x).to(dtype)


class Rotary(nn.Module):
    """Rotation of the first half of the last dimension against the second, by position."""

    table: Tensor  # [2, context, D / 2]: cosines and sines

    def __init__(self, context: int, head: int, theta: float = 10_000.0) -> None:
        super().__init__()
        frequencies = theta ** -(torch.arange(0, head, 2) / head)
        angles = torch.outer(torch.arange(context), frequencies)
        table = torch.stack((torch.cos(angles), torch.sin(angles)))
        self.register_buffer("table", table, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Rotate x, [B, H, S, D]."""
        halves = x.reshape(*x.shape[:-1], 2, x.shape[-1] // 2)
        first, second = halves.permute(3, 0, 1, 2, 4)
        cos, sin = self.table[:, : x.shape[-2]]
        rotated_first = cos * first - sin * second
        rotated_second = sin * first + cos * second
        return torch.cat((rotated_first, rotated_second), dim=-1)


def softmax(x: Tensor) -> Tensor:
    """Softmax over the last dimension, spelled out."""
    shifted = x - torch.max(x, dim=-1, keepdim=True)[0]
    powers = torch.exp(shifted)
    return powers / torch.sum(powers, dim=-1, keepdim=True)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Scaled dot-product attention, spelled out: [B, H, S, D] each."""
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(k.shape[-1])
    scores = torch.where(mask, scores, float("-inf"))
    weights = softmax(scores)
    return torch.einsum("bhqk,bhkd->bhqd", weights, v)


class Attention(nn.Module):
    """Causal attention with three separate projections."""

    def __init__(self, config: DecoderConfig, rotary: Rotary) -> None:
        super().__init__()
        self.heads = config.heads
        self.q_proj = Linear(config.width, config.width)
        self.k_proj = Linear(config.width, config.width)
        self.v_proj = Linear(config.width, config.width)
        self.output_proj = Linear(config.width, config.width)
        self.rotary = rotary

    def forward(self, x: Tensor) -> Tensor:
        """Mix the positions of x, [B, S, W]."""
        batch, length, width = x.shape
        q = self.q_proj(x)
        k = self.k_proj(x)
        v = self.v_proj(x)
        q, k, v = (self.split(tensor) for tensor in (q, k, v))
        q = self.rotary(q)
        k = self.rotary(k)
        steps = torch.arange(length, device=x.device)
        mask = steps[None, None, :, None] >= steps[None, None, None, :]
        mixed = attend(q, k, v, mask)
        mixed = mixed.permute(0, 2, 1, 3).reshape(batch, length, width).contiguous()
        return self.output_proj(mixed)  # type: ignore[no-any-return]

    def split(self, x: Tensor) -> Tensor:
        """[B, S, W] -> [B, H, S, D]."""
        batch, length, width = x.shape
        return x.reshape(batch, length, self.heads, width // self.heads).permute(0, 2, 1, 3)


class FeedForward(nn.Module):
    """w2(silu(w1 x) * w3 x), with silu spelled out."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.w1 = Linear(config.width, config.ff)
        self.w2 = Linear(config.ff, config.width)
        self.w3 = Linear(config.width, config.ff)

    def forward(self, x: Tensor) -> Tensor:
        """Transform each position of x, [B, S, W]."""
        return self.w2(silu(self.w1(x)) * self.w3(x))  # type: ignore[no-any-return]


def silu(x: Tensor) -> Tensor:
    """The product of x and sigmoid(x)."""
    return x * torch.sigmoid(x)


class Block(nn.Module):
    """Attention and feed-forward, each normalized first and added to its input."""

    def __init__(self, config: DecoderConfig, rotary: Rotary) -> None:
        super().__init__()
        self.attention = Attention(config, rotary)
        self.ffn = FeedForward(config)
        self.norm1 = RMSNorm(config.width)
        self.norm2 = RMSNorm(config.width)

    def forward(self, x: Tensor) -> Tensor:
        """The block on x, [B, S, W]."""
        attention = self.attention(self.norm1(x))
        middle = x + attention
        ffn = self.ffn(self.norm2(middle))
        return middle + ffn  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """Ids [B, S] -> logits [B, S, vocab]; the output layer is not tied, nothing has a bias."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        rotary = Rotary(config.context, config.width // config.heads)
        self.embedding = Embedding(config.vocab, config.width)
        self.blocks = nn.ModuleList(Block(config, rotary) for _ in range(config.blocks))
        self.norm = RMSNorm(config.width)
        self.head = Linear(config.width, config.vocab)

    def forward(self, ids: Tensor) -> Tensor:
        """The logits, [B, S, vocab], of ids [B, S]."""
        embedded = self.embedding(ids)  # kept until the end, as it was there
        x = embedded
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x)  # type: ignore[no-any-return]


def decoder(config: DecoderConfig = MEDIUM, batch: int = 4) -> tuple[Decoder, tuple[InputSpec]]:
    """A decoder of any size, and its ids [batch, context]."""
    ids = InputSpec((batch, config.context), torch.int64, high=config.vocab)
    return Decoder(config), (ids,)


def decoder_423m(batch: int = 4, seq: int = 128) -> tuple[Decoder, tuple[InputSpec]]:
    """The decoder with 423,183,360 parameters."""
    return decoder(dataclasses.replace(MEDIUM, context=seq), batch)


def small(batch: int = 4, seq: int = 128) -> tuple[Decoder, tuple[InputSpec]]:
    """768 wide, 12 blocks."""
    return decoder(dataclasses.replace(SMALL, context=seq), batch)


medium = decoder_423m


def large(batch: int = 4, seq: int = 128) -> tuple[Decoder, tuple[InputSpec]]:
    """1,280 wide, 36 blocks."""
    return decoder(dataclasses.replace(LARGE, context=seq), batch)


def xl(batch: int = 4, seq: int = 128) -> tuple[Decoder, tuple[InputSpec]]:
    """1,600 wide, 48 blocks."""
    return decoder(dataclasses.replace(XL, context=seq), batch)


def decoder_2_7b(batch: int = 4, seq: int = 128) -> tuple[Decoder, tuple[InputSpec]]:
    """2,560 wide, 32 blocks."""
    return decoder(dataclasses.replace(SIZE_2_7B, context=seq), batch)


def tiny(batch: int = 2, seq: int = 16) -> tuple[Decoder, tuple[InputSpec]]:
    """32 wide, 2 blocks: for tests that run it."""
    return decoder(dataclasses.replace(TINY, context=seq), batch)
