"""torchtune's Llama with its LoRA and its losses, as far as they decide bytes.

Written afresh after what torchtune's modules do, operator by operator. The loss is part of
the call where the recipe lets logits go before backward; in April 2024 it held those it gave to
the loss. A loss that torch.compile makes is written as what its kernels keep: half-precision
logits and two numbers a token.

Source: meta-pytorch/torchtune, torchtune/modules/attention.py, transformer.py, rms_norm.py,
position_embeddings.py, feed_forward.py, peft/lora.py at ff594c231 (April 2024) and 1814feb17
(November 2024); loss/ce_chunked_output_loss.py at 1814feb17.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CHUNKS = 8
"""``num_output_chunks`` of ``CEWithChunkedOutputLoss``."""

DROPOUT = 0.05
"""``lora_dropout`` of ``lora_llama2_7b``, by default (at ff594c231)."""


@unique
class Loss(Enum):
    """Of fp32 logits at once, of a copy without the last token, or in compiled chunks."""

    WHOLE = "CrossEntropyLoss"
    SHIFTED = "CrossEntropyLoss, on shifted logits"
    CHUNKED = "CEWithChunkedOutputLoss, compiled"


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama; ``rank`` 0 is without LoRA, ``is_everywhere`` is LoRA in every linear layer."""

    vocabulary: int
    layers: int
    width: int
    heads: int
    key_heads: int
    hidden: int
    is_tied: bool = False
    rank: int = 0
    is_everywhere: bool = False
    loss: Loss = Loss.WHOLE


class RMSNorm(nn.Module):
    """x: [B, T, C] -> the same, computed in fp32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last dimension."""
        whole = x.float()
        inverse = torch.rsqrt(whole.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (whole * inverse).type_as(x) * self.scale


class Adapted(nn.Module):
    """A frozen linear layer with LoRA beside it."""

    def __init__(self, width: int, count: int, rank: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, width), requires_grad=False)
        self.dropout = nn.Dropout(DROPOUT)
        self.lora_a = nn.Linear(width, rank, bias=False)
        self.lora_b = nn.Linear(rank, count, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., width] -> [..., count]."""
        made: Tensor = F.linear(x, self.weight) + 2.0 * self.lora_b(self.lora_a(self.dropout(x)))
        return made


def _linear(shape: Shape, width: int, count: int, always: bool = False) -> nn.Module:
    if shape.rank and (always or shape.is_everywhere):
        return Adapted(width, count, shape.rank)
    return nn.Linear(width, count, bias=False)


def _turned(x: Tensor, table: Tensor) -> Tensor:
    """Rotary positions of pairs beside each other. x: [B, T, H, D]; table: [T, D / 2, 2] fp32."""
    pairs = x.float().reshape(*x.shape[:-1], -1, 2)
    table = table.view(-1, pairs.shape[1], 1, pairs.shape[3], 2)
    first = pairs[..., 0] * table[..., 0] - pairs[..., 1] * table[..., 1]
    second = pairs[..., 1] * table[..., 0] + pairs[..., 0] * table[..., 1]
    return torch.stack([first, second], -1).flatten(3).type_as(x)


class Attention(nn.Module):
    """Attention of heads over shared keys, which are repeated before it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.size, self.each = shape.width // shape.heads, shape.heads // shape.key_heads
        keys = shape.key_heads * self.size
        self.q_proj = _linear(shape, shape.width, shape.width, always=True)
        self.k_proj = _linear(shape, shape.width, keys)
        self.v_proj = _linear(shape, shape.width, keys, always=True)
        self.output_proj = _linear(shape, shape.width, shape.width)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """x: [B, T, C] -> the same."""
        batch, tokens, _ = x.shape
        q, k, v = (
            made.view(batch, tokens, -1, self.size)
            for made in (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        )
        q, k, v = (part.transpose(1, 2) for part in (_turned(q, table), _turned(k, table), v))
        if self.each > 1:
            k, v = (self._repeated(part) for part in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        made: Tensor = self.output_proj(y.transpose(1, 2).contiguous().view(batch, tokens, -1))
        return made

    def _repeated(self, x: Tensor) -> Tensor:
        batch, keys, tokens, size = x.shape
        return x.unsqueeze(2).expand(batch, keys, self.each, tokens, size).flatten(1, 2)


class Layer(nn.Module):
    """Attention, then three matrices with a gate of SiLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attn = Attention(shape)
        self.sa_norm, self.mlp_norm = RMSNorm(shape.width), RMSNorm(shape.width)
        self.w1 = _linear(shape, shape.width, shape.hidden)
        self.w2 = _linear(shape, shape.hidden, shape.width)
        self.w3 = _linear(shape, shape.width, shape.hidden)

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        """x: [B, T, C] -> the same."""
        h = self.attn(self.sa_norm(x), table) + x
        normed = self.mlp_norm(h)
        made: Tensor = h + self.w2(F.silu(self.w1(normed)) * self.w3(normed))
        return made


class Llama(nn.Module):
    """A Llama that gives its loss, or (``SHIFTED``) what its loss is taken of."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.tok_embeddings = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.width)
        self.output = None if shape.is_tied else _linear(shape, shape.width, shape.vocabulary)
        if shape.rank:
            for name, parameter in self.named_parameters():
                parameter.requires_grad_("lora_" in name)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """tokens, labels: [B, T] int64 -> the loss, or [B, V, T - 1] fp32 and the labels."""
        size = self.shape.width // self.shape.heads
        table = torch.ones(tokens.shape[1], size // 2, 2)
        h = self.tok_embeddings(tokens)
        for layer in self.layers:
            h = layer(h, table)
        h = self.norm(h)
        if self.shape.loss is Loss.CHUNKED:
            parts = [self._logits(part) for part in h.chunk(CHUNKS, dim=1)]
            return _chunked(parts, labels)
        logits = self._logits(h).float()
        if self.shape.loss is Loss.SHIFTED:
            return logits[..., :-1, :].contiguous().transpose(1, 2), labels[..., 1:].contiguous()
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))

    def _logits(self, h: Tensor) -> Tensor:
        if self.output is None:
            return F.linear(h, self.tok_embeddings.weight)
        made: Tensor = self.output(h)
        return made


def loss_of(outputs: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """The loss of what the model gives."""
    return outputs if isinstance(outputs, Tensor) else F.cross_entropy(*outputs)


def _chunked(parts: list[Tensor], labels: Tensor) -> Tensor:
    wanted = [part.reshape(-1) for part in labels.chunk(CHUNKS, dim=1)]
    total: Any = 0.0
    for part, own in zip(parts, wanted, strict=True):
        total += Compiled.apply(part.reshape(-1, part.shape[-1]), own)  # type: ignore[no-untyped-call]
    summed: Tensor = total / labels.numel()
    return summed


class Compiled(torch.autograd.Function):
    """Cross-entropy of half-precision logits as inductor fuses it: no fp32 copy is made."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        """logits: [N, V]; labels: [N] -> a sum, fp32."""
        largest = logits.new_empty((logits.shape[0], 1), dtype=torch.float32)
        logarithm = torch.empty_like(largest)
        ctx.save_for_backward(logits, labels, largest, logarithm)
        return logits.new_empty((), dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The logits' gradient in their own dtype."""
        logits, *_ = ctx.saved_tensors
        return torch.empty_like(logits), None
