"""litgpt's decoder with its LoRA, as far as it decides bytes.

Written afresh after what ``model.py`` and ``lora.py`` do, operator by operator; the names are
ours. Two things changed with time, and are settings: how RMSNorm computes, and how the update
of q, k and v is filled up with zeros.

Source: Lightning-AI/litgpt, lit_gpt/model.py, rmsnorm.py and lora.py at 8641822 (October 2023);
litgpt/model.py and lora.py at 4a9b7e62 (March 2024) and 00af8b0d (September 2024).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import Enum, unique

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HEAD_CHUNK = 128
"""Tokens for which LoRA's recipe asks the head at once (``lm_head_chunk_size``)."""


@unique
class Norm(Enum):
    """LayerNorm, and RMSNorm as it was: in the input's dtype, in fp32 but for the weight, whole."""

    LAYER = "layer"
    RMS_HALF = "rms, October 2023"
    RMS_CAST = "rms, March 2024"
    RMS_WHOLE = "rms, August 2024"


@unique
class FeedForward(Enum):
    """Two matrices around a GELU, or three with a gate of SiLU or GELU."""

    PLAIN = "GptNeoxMLP"
    SILU = "LLaMAMLP"
    GELU = "GemmaMLP"


@dataclass(frozen=True, slots=True)
class Shape:
    """What of litgpt's ``Config`` decides bytes; the defaults are its own.

    ``key_heads`` None is as many as heads; ``head_size`` None is the width by the heads.
    """

    vocabulary: int
    layers: int
    width: int
    heads: int
    hidden: int
    key_heads: int | None = None
    head_size: int | None = None
    rotary: float = 1.0
    norm: Norm = Norm.RMS_CAST
    feed_forward: FeedForward = FeedForward.SILU
    is_parallel: bool = False
    has_shared_norm: bool = False
    has_bias: bool = False
    has_head_bias: bool = False
    gelu: str = "none"
    is_gemma: bool = False
    is_gemma2: bool = False

    def at(self, norm: Norm) -> Shape:
        """The same model with RMSNorm as it was at another time."""
        return self if self.norm is Norm.LAYER else replace(self, norm=norm)


@dataclass(frozen=True, slots=True)
class Lora:
    """LoRA's settings: the rank (0: none), dropout, and which matrices have it.

    ``copies`` says that zeros are filled in out of place, as until May 2024.
    """

    rank: int = 0
    dropout: float = 0.05
    has_key: bool = False
    is_everywhere: bool = False
    copies: bool = True


class RMSNorm(nn.Module):
    """x: [B, T, C] -> the same."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.width))
        self.kind, self.has_offset = shape.norm, shape.is_gemma

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last dimension."""
        weight: Tensor = 1 + self.weight if self.has_offset else self.weight
        if self.kind is Norm.RMS_HALF:
            return weight * _normed(x)
        normed = _normed(x.float())
        if self.kind is Norm.RMS_CAST:
            return normed.to(x.dtype) * weight
        return (normed * weight.float()).to(x.dtype)


def _normed(x: Tensor) -> Tensor:
    made: Tensor = x * torch.rsqrt(torch.mean(x * x, dim=-1, keepdim=True) + 1e-5)
    return made


def _norm(shape: Shape) -> nn.Module:
    return nn.LayerNorm(shape.width) if shape.norm is Norm.LAYER else RMSNorm(shape)


class Adapted(nn.Module):
    """A linear layer with LoRA beside it, where the rank is not 0."""

    def __init__(self, width: int, count: int, bias: bool, lora: Lora, rank: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, count, bias=bias)
        self.rank = rank
        if rank:
            self.dropout = nn.Dropout(lora.dropout)
            self.lora_a = nn.Parameter(torch.empty(rank, width))
            self.lora_b = nn.Parameter(torch.empty(count, rank))

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., width] -> [..., count]."""
        plain: Tensor = self.linear(x)
        if not self.rank:
            return plain
        narrow: Tensor = self.dropout(x) @ self.lora_a.transpose(0, 1)
        update: Tensor = (narrow @ self.lora_b.transpose(0, 1)) * 2.0
        return plain + update


class AdaptedQKV(nn.Module):
    """The matrix of q, k and v, with LoRA by convolutions; k's update may be zeros."""

    def __init__(self, shape: Shape, lora: Lora) -> None:
        super().__init__()
        size, heads, keys = _heads(shape)
        self.linear = nn.Linear(shape.width, (heads + 2 * keys) * size, bias=shape.has_bias)
        self.lora, self.is_even = lora, heads == keys
        counts = (heads * size, keys * size * lora.has_key, keys * size)
        self.counts = [count for count in counts if count]
        if lora.rank:
            self.dropout = nn.Dropout(lora.dropout)
            self.lora_a = nn.Parameter(torch.empty(lora.rank * len(self.counts), shape.width))
            self.lora_b = nn.Parameter(torch.empty(sum(self.counts), lora.rank))
            self.places = list(range(sum(self.counts)))

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, T, C] -> [B, T, (heads + 2 key heads) * size]."""
        plain: Tensor = self.linear(x)
        if not self.lora.rank:
            return plain
        narrow = F.linear(self.dropout(x), self.lora_a)
        wide = self._convolved(narrow.transpose(-2, -1), self.lora_b.unsqueeze(-1))
        return plain + self._filled(wide.transpose(-2, -1)) * 0.5

    def _convolved(self, x: Tensor, weight: Tensor) -> Tensor:
        """x: [B, n rank, T] -> [B, sum(counts), T]."""
        parts = len(self.counts)
        if self.is_even:
            return F.conv1d(x, weight, groups=parts)
        pairs = zip(x.chunk(parts, dim=1), weight.split(self.counts), strict=True)
        return torch.cat([F.conv1d(a, b) for a, b in pairs], dim=1)

    def _filled(self, x: Tensor) -> Tensor:
        if self.lora.has_key:
            return x
        count = self.linear.out_features
        places = torch.tensor(self.places)
        if not self.lora.copies:
            return x.new_zeros(*x.shape[:-1], count).index_copy_(-1, places, x)
        x = x.transpose(0, 1)
        filled = x.new_zeros((*x.shape[:-1], count)).view(-1, count)
        filled = filled.index_copy(1, places, x.reshape(-1, x.shape[-1]))
        return filled.view((*x.shape[:-1], count)).transpose(0, 1)


def _heads(shape: Shape) -> tuple[int, int, int]:
    """The size of a head, and how many there are of queries and of keys."""
    size = shape.head_size or shape.width // shape.heads
    return size, shape.heads, shape.key_heads or shape.heads


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions, in the tables' dtype and back."""
    half = x.shape[-1] // 2
    rotated = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return ((x * cos) + (rotated * sin)).to(x.dtype)


class Attention(nn.Module):
    """Attention of heads over shared keys, which are repeated before it."""

    def __init__(self, shape: Shape, lora: Lora) -> None:
        super().__init__()
        size, heads, _ = _heads(shape)
        self.shape = shape
        self.attn = AdaptedQKV(shape, lora)
        rank = lora.rank if lora.is_everywhere else 0
        self.proj = Adapted(size * heads, shape.width, shape.has_bias, lora, rank)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x: [B, T, C] -> the same."""
        size, heads, keys = _heads(self.shape)
        batch, tokens, _ = x.shape
        each = heads // keys
        qkv = self.attn(x).view(batch, tokens, keys, each + 2, size).permute(0, 2, 3, 1, 4)
        q, k, v = qkv.split((each, 1, 1), dim=2)
        if each > 1:
            k = k.expand(batch, keys, each, tokens, size)
            v = v.expand(batch, keys, each, tokens, size)
        q, k, v = (part.reshape(batch, -1, tokens, size) for part in (q, k, v))
        turned = int(self.shape.rotary * size)
        q, k = (
            torch.cat((_turned(part[..., :turned], cos, sin), part[..., turned:]), dim=-1)
            for part in (q, k)
        )
        y = self._attended(q, k, v).transpose(1, 2)
        out: Tensor = self.proj(y.reshape(batch, tokens, size * heads))
        return out

    def _attended(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scale = 1 / math.sqrt(q.shape[-1])
        if not self.shape.is_gemma2:
            return F.scaled_dot_product_attention(q, k, v, scale=scale, is_causal=True)
        scores = _capped(q @ k.mT * scale, 50.0)
        mask = torch.ones(q.shape[2], q.shape[2], dtype=q.dtype).triu(diagonal=1)
        mask.masked_fill_(mask.bool(), torch.finfo(q.dtype).min)
        scores = F.softmax(scores + mask, dim=-1, dtype=torch.float).to(q.dtype)
        return scores @ v


def _capped(x: Tensor, limit: float) -> Tensor:
    return torch.tanh(x / limit) * limit


class Hidden(nn.Module):
    """The feed-forward part."""

    def __init__(self, shape: Shape, lora: Lora) -> None:
        super().__init__()
        rank = lora.rank if lora.is_everywhere else 0
        self.kind, self.gelu = shape.feed_forward, shape.gelu
        self.fc_1 = Adapted(shape.width, shape.hidden, shape.has_bias, lora, rank)
        if self.kind is not FeedForward.PLAIN:
            self.fc_2 = Adapted(shape.width, shape.hidden, shape.has_bias, lora, rank)
        self.proj = Adapted(shape.hidden, shape.width, shape.has_bias, lora, rank)

    def forward(self, x: Tensor) -> Tensor:
        """x: [B, T, C] -> the same."""
        if self.kind is FeedForward.PLAIN:
            return self.proj(F.gelu(self.fc_1(x), approximate=self.gelu))  # type: ignore[no-any-return]
        first, second = self.fc_1(x), self.fc_2(x)
        is_silu = self.kind is FeedForward.SILU
        gate = F.silu(first) if is_silu else F.gelu(first, approximate=self.gelu)
        return self.proj(gate * second)  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and feed-forward, one after the other or beside each other."""

    def __init__(self, shape: Shape, lora: Lora) -> None:
        super().__init__()
        self.shape = shape
        self.norm_1, self.attn = _norm(shape), Attention(shape, lora)
        self.norm_2 = None if shape.has_shared_norm else _norm(shape)
        self.mlp = Hidden(shape, lora)
        self.post_attention = _norm(shape) if shape.is_gemma2 else nn.Identity()
        self.post_mlp = _norm(shape) if shape.is_gemma2 else nn.Identity()

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x: [B, T, C] -> the same."""
        normed = self.norm_1(x)
        attended = self.post_attention(self.attn(normed, cos, sin))
        if self.shape.is_parallel:
            normed = normed if self.norm_2 is None else self.norm_2(x)
            return self.mlp(normed) + attended + x  # type: ignore[no-any-return]
        x = attended + x
        assert self.norm_2 is not None  # those that share a norm are parallel
        return self.post_mlp(self.mlp(self.norm_2(x))) + x  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """The whole model; its logits come in chunks of tokens where ``chunk`` is given."""

    def __init__(self, shape: Shape, lora: Lora) -> None:
        super().__init__()
        self.shape = shape
        rank = lora.rank if lora.is_everywhere else 0
        self.lm_head = Adapted(shape.width, shape.vocabulary, shape.has_head_bias, lora, rank)
        self.wte = nn.Embedding(shape.vocabulary, shape.width)
        self.h = nn.ModuleList(Block(shape, lora) for _ in range(shape.layers))
        self.ln_f = _norm(shape)
        if lora.rank:
            for name, parameter in self.named_parameters():
                parameter.requires_grad_("lora_" in name)

    def forward(
        self, ids: Tensor, cos: Tensor, sin: Tensor, chunk: int = 0
    ) -> Tensor | list[Tensor]:
        """ids: [B, T] int64; cos, sin: [T, rotary dimensions] fp32 -> [B, T, V], or chunks."""
        x = self.wte(ids)
        if self.shape.is_gemma:
            x = x * (self.shape.width**0.5)
        for block in self.h:
            x = block(x, cos, sin)
        x = self.ln_f(x)
        if chunk:
            return [self.lm_head(part) for part in x.split(chunk, dim=1)]
        return self.lm_head(x)  # type: ignore[no-any-return]

    def tables(self, tokens: int) -> tuple[Tensor, Tensor]:
        """The cosines and sines of so many positions, in fp32."""
        size, *_ = _heads(self.shape)
        shape = (tokens, int(self.shape.rotary * size))
        return torch.ones(shape), torch.ones(shape)
