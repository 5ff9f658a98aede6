"""Positions in attention: rotary embeddings and biases by distance."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.microsoft.attention import heads
from graphmem.sources.onnx.rules.microsoft.of_onnx import MICROSOFT
from graphmem.sources.onnx.values import integer


def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Rotate pairs of each head's first elements by an angle.

    Args:
        x: [B, N, S, H].
        cos: [B or 1, 1, S, R / 2] of the R elements that turn; sin: the same.
        interleaved: pairs are neighbours, else R / 2 apart.
    """
    turning = cos.shape[-1] * 2
    part, rest = x[..., :turning], x[..., turning:]
    if interleaved:
        a, b = part[..., 0::2], part[..., 1::2]
        turned = torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)
    else:
        a, b = part.chunk(2, dim=-1)
        turned = torch.cat((a * cos - b * sin, b * cos + a * sin), -1)
    return torch.cat((turned, rest), -1) if rest.shape[-1] else turned


@rule("RotaryEmbedding", domain=MICROSOFT, constants=(2, 3))
def rotary_embedding(
    call: Call, x: Tensor, position_ids: Tensor, cos_cache: Tensor, sin_cache: Tensor
) -> Tensor:
    """Rotary positions of [B, S, N * H] or [B, N, S, H].

    Args:
        position_ids: [B, S], or [1]: the position of the first.
    """
    count = call.integer("num_heads", 0)
    part = call.integer("rotary_embedding_dim", 0)
    size = x.shape[-1] // count if count and part else cos_cache.shape[1] * 2
    split = x if x.dim() == 4 else heads(x, x.shape[-1] // size)
    positions = position_ids.long()
    if positions.dim() == 1:
        positions = (positions + torch.arange(split.shape[2], device=x.device))[None]
    cos, sin = cos_cache[positions][:, None], sin_cache[positions][:, None]
    turned = rotate(split, cos, sin, bool(call.integer("interleaved", 0)))
    return turned if x.dim() == 4 else turned.transpose(1, 2).reshape(x.shape)


@rule("GemmaRotaryEmbedding", domain=MICROSOFT)
def gemma_rotary_embedding(
    call: Call, emb: Tensor, q: Tensor, q_rot: Tensor, k: Tensor, k_rot: Tensor
) -> tuple[Tensor, Tensor]:
    """Queries and keys [B, N, S, H] turned by the sine and cosine of angles [B, S, H]."""
    sin, cos = torch.sin(emb).to(q.dtype)[:, None], torch.cos(emb).to(q.dtype)[:, None]
    return q * cos + q_rot * sin, k * cos + k_rot * sin


@rule("RelativePositionBias", domain=MICROSOFT)
def relative_position_bias(
    call: Call, bias_table: Tensor, query_length: Tensor, key_length: Tensor
) -> Tensor:
    """T5's bias by distance [1, N, S, T] from a table [buckets, N], in memory column by column.

    Half of the buckets are exact distances, the others grow by powers up to ``max_distance``.
    Source: onnxruntime/contrib_ops/cuda/bert/relative_attn_bias_impl.cu, which takes a key
    ahead as far as one behind where the bias is not bidirectional (a mask hides those).
    """
    queries, keys = integer(query_length), integer(key_length)
    device = bias_table.device
    ahead = torch.arange(keys, device=device)[None] - torch.arange(queries, device=device)[:, None]
    both = bool(call.integer("is_bidirectional", 0))
    bucket = _bucket(ahead, both, bias_table.shape[0], call.integer("max_distance"))
    by_head = bias_table.reshape(bias_table.shape[1], bias_table.shape[0])
    return by_head[:, bucket][None]


def _bucket(ahead: Tensor, both: bool, buckets: int, furthest: int) -> Tensor:
    distance = ahead.abs()
    buckets = buckets // 2 if both else buckets
    offset = (ahead > 0).long() * buckets if both else torch.zeros_like(ahead)
    exact = buckets // 2
    growth = torch.log(distance.clamp(min=1).float() / exact) / math.log(furthest / exact)
    far = (exact + (growth * (buckets - exact)).long()).clamp(max=buckets - 1)
    return offset + torch.where(distance < exact, distance, far)


@rule("GatedRelativePositionBias", domain=MICROSOFT)
def gated_relative_position_bias(
    call: Call,
    query: Tensor,
    query_bias: Tensor,
    rel_pos: Tensor,
    weight: Tensor,
    bias: Tensor,
    eco_a: Tensor,
    token_offset: Tensor | None = None,
) -> Tensor:
    """A bias by distance [B, N, S, S], weighed by a gate that each query gives.

    Args:
        query: [B, S, N * H], or without padding [tokens, N * H] with ``token_offset`` [B, S].
    """
    q = query + query_bias
    if token_offset is not None:
        places = token_offset.reshape(-1)[: q.shape[0]].long()
        full = q.new_zeros(token_offset.numel(), q.shape[1])
        q = full.index_copy(0, places, q).reshape(*token_offset.shape, -1)
    split = heads(q, call.integer("num_heads"))
    gates = torch.matmul(split, weight) + bias
    sums = gates.reshape(*gates.shape[:-1], 2, -1).sum(-1)
    update, reset = torch.sigmoid(sums).chunk(2, dim=-1)
    return (update * (reset * eco_a - 1.0) + 2.0) * rel_pos
