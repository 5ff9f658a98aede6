"""Batches without padding: tokens of all sequences in one row [tokens, D]."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.microsoft.attention import (
    added,
    attend,
    heads,
    scale_of,
)
from graphmem.sources.onnx.rules.microsoft.of_onnx import MICROSOFT, results


def _padded(x: Tensor, token_offset: Tensor) -> Tensor:
    """[tokens, D] as [B, S, D], zeros where there is no token."""
    full = x.new_zeros(token_offset.numel(), x.shape[1])
    places = token_offset.reshape(-1)[: x.shape[0]].long()
    return full.index_copy(0, places, x).reshape(*token_offset.shape, x.shape[1])


def _attended(
    call: Call,
    parts: tuple[Tensor, ...],
    token_offset: Tensor,
    cumulative: Tensor,
    bias: Tensor | None,
) -> Tensor:
    """Attention of packed queries, keys and values within each sequence; packed again."""
    count = call.integer("num_heads")
    q, k, v = (heads(_padded(p, token_offset), count) for p in parts)
    lengths = cumulative[1:] - cumulative[:-1]
    beyond = torch.arange(k.shape[2], device=k.device) >= lengths[:, None]
    lowest = torch.finfo(q.dtype).min
    hidden = q.new_zeros(beyond.shape).masked_fill(beyond, lowest)[:, None, None, :]
    output = attend(q, k, v, scale_of(call, q.shape[-1]), added(bias, hidden)).output
    places = token_offset.reshape(-1)[: parts[0].shape[0]].long()
    return output.flatten(0, 1)[places]


@rule("PackedAttention", domain=MICROSOFT)
def packed_attention(
    call: Call,
    x: Tensor,
    weights: Tensor,
    bias: Tensor,
    token_offset: Tensor,
    cumulative: Tensor,
    attention_bias: Tensor | None = None,
) -> Tensor:
    """Attention with its projections: [tokens, D] to [tokens, Dv]."""
    projected = torch.matmul(x, weights) + bias
    sizes = call.integers("qkv_hidden_sizes", (projected.shape[-1] // 3,) * 3)
    parts = projected.split(list(sizes), dim=-1)
    return _attended(call, parts, token_offset, cumulative, attention_bias)


@rule("PackedMultiHeadAttention", domain=MICROSOFT)
def packed_multi_head_attention(
    call: Call,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    bias: Tensor | None,
    token_offset: Tensor,
    cumulative: Tensor,
    attention_bias: Tensor | None = None,
) -> Tensor:
    """Attention of projections [tokens, D], or all three as [tokens, N, 3, H]."""
    if key is None or value is None:
        parts = tuple(p.flatten(1) for p in query.unbind(2))
    else:
        parts = (query, key, value)
    if bias is not None:
        biases = bias.split([p.shape[1] for p in parts])
        parts = tuple(p + b for p, b in zip(parts, biases, strict=True))
    return _attended(call, parts, token_offset, cumulative, attention_bias)


@rule("RemovePadding", domain=MICROSOFT)
def remove_padding(call: Call, x: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """[B, S, D] without its padding; offsets of tokens, then of padding; sums; the longest."""
    batch, length = x.shape[:2]
    kept = (torch.arange(length, device=x.device) < counts[:, None]).reshape(-1)
    order = torch.argsort((~kept).to(torch.int8), stable=True).to(torch.int32)
    tokens = x.flatten(0, 1)[kept]
    sums = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(torch.int32)
    longest = counts.max().reshape(1).to(torch.int32)
    made = results(call, tokens, order.reshape(batch, length), sums, longest)
    return made  # type: ignore[no-any-return]


@rule("RestorePadding", domain=MICROSOFT)
def restore_padding(call: Call, x: Tensor, token_offset: Tensor) -> Tensor:
    """[tokens, D] as [B, S, D], zeros where there is no token."""
    return _padded(x, token_offset)
