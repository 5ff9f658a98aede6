"""Attention of all heads at once: Attention, MultiHeadAttention, and while decoding."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphmem.sources.onnx.refusal import refused
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.microsoft.of_onnx import MICROSOFT, results
from graphmem.sources.onnx.values import integer


class Attended(NamedTuple):
    """The output [B, S, N * Hv], and the scaled products with what was added [B, N, S, T]."""

    output: Tensor
    scores: Tensor


def attend(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None) -> Attended:
    """``softmax(scale * q kᵀ + bias) v``.

    Args:
        q: [B, N, S, H]; k: [B, N, T, H]; v: [B, N, T, Hv].
        bias: broadcasts to [B, N, S, T]; None for nothing to add.
    """
    scores = torch.matmul(q, k.transpose(-1, -2)) * scale
    if bias is not None:
        scores = scores + bias
    context = torch.matmul(torch.softmax(scores, -1), v)
    return Attended(merged(context), scores)


def heads(x: Tensor, count: int) -> Tensor:
    """[B, S, N * H] as [B, N, S, H]."""
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def merged(x: Tensor) -> Tensor:
    """[B, N, S, H] as [B, S, N * H]."""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def scale_of(call: Call, head_size: int) -> float:
    """The node's scale; the inverse root of the head's size if it is left out or 0."""
    return call.number("scale", 0.0) or 1.0 / math.sqrt(head_size)


def causal_bias(like: Tensor, queries: int, keys: int) -> Tensor:
    """[S, T]: the lowest number where a key comes after the query; the queries are the last."""
    lowest = torch.finfo(like.dtype).min
    full = torch.full((queries, keys), lowest, dtype=like.dtype, device=like.device)
    return torch.triu(full, diagonal=keys - queries + 1)


def mask_bias(call: Call, mask: Tensor, like: Tensor, queries: int, keys: int) -> Tensor:
    """What a mask adds to the scores [B or 1, 1, S or 1, T]: 0, or ``mask_filter_value``.

    Args:
        mask: [B, T] or [B, S, T] (1 keeps a key); [B] ends of the keys; [2 * B] ends and then
            starts; [3 * B + 2] ends, then sums of lengths, which say nothing more; or
            [B, 1, M, M], of which the rows of the queries count.
        like: a tensor of the scores' type, of batch B.

    Source: onnxruntime/contrib_ops/cpu/bert/attention_helper.h, PrepareMask.
    """
    kept = _kept(mask, like.shape[0], queries, keys)
    value = call.number("mask_filter_value", -10000.0)
    return torch.zeros_like(kept, dtype=like.dtype).masked_fill(~kept, value)


def _kept(mask: Tensor, batch: int, queries: int, keys: int) -> Tensor:
    if mask.dim() == 1:
        return _within(mask, batch, keys)
    kept = mask > 0
    if mask.dim() == 2:
        return kept[:, None, None, :]
    if mask.dim() == 3:
        return kept[:, None]
    return kept[:, :, keys - queries : keys, :keys]


def _within(mask: Tensor, batch: int, keys: int) -> Tensor:
    places = torch.arange(keys, device=mask.device)
    kept = places < mask[:batch, None]
    if mask.shape[0] == 2 * batch:
        kept = kept & (places >= mask[batch:, None])
    return kept[:, None, None, :]


def added(*biases: Tensor | None) -> Tensor | None:
    """The sum of those that are given."""
    total: Tensor | None = None
    for bias in biases:
        if bias is not None:
            total = bias if total is None else total + bias
    return total


def all_biases(
    call: Call, like: Tensor, queries: int, keys: int, mask: Tensor | None, bias: Tensor | None
) -> Tensor | None:
    """What a node adds to its scores: its bias, its mask, and where a query looks ahead."""
    causal = call.integer("unidirectional", 0) and queries > 1
    return added(
        bias,
        None if mask is None else mask_bias(call, mask, like, queries, keys),
        causal_bias(like, queries, keys) if causal else None,
    )


@rule("Attention", domain=MICROSOFT)
def attention(
    call: Call,
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
) -> Any:
    """Self-attention with its projections: [B, S, D] to [B, S, Dv], and the keys and values.

    Args:
        weights: [D, Dq + Dk + Dv], of queries, keys and values side by side.
        past: [2, B, N, P, H], or of the longest length if ``past_present_share_buffer``.
    """
    projected = torch.matmul(x, weights)
    if bias is not None:
        projected = projected + bias
    return self_attention(call, projected, mask, past, attention_bias, past_sequence_length)


def self_attention(
    call: Call,
    projected: Tensor,
    mask: Tensor | None,
    past: Tensor | None,
    attention_bias: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
) -> Any:
    """Attention of projected queries, keys and values [B, S, Dq + Dk + Dv] with their past."""
    if call.integer("do_rotary", 0):
        raise refused(call, "no rule for rotary positions inside of Attention")
    count = call.integer("num_heads")
    sizes = call.integers("qkv_hidden_sizes", (projected.shape[-1] // 3,) * 3)
    q, k, v = (heads(part, count) for part in projected.split(list(sizes), dim=-1))
    before = (None, None) if past is None else (past[0], past[1])
    length = None if past_sequence_length is None else integer(past_sequence_length)
    keys, values = Cache(before[0], length).joined(k), Cache(before[1], length).joined(v)
    total = added_bias = None
    total = keys.used
    added_bias = all_biases(call, q, q.shape[2], total.shape[2], mask, attention_bias)
    attended = attend(q, total, values.used, scale_of(call, q.shape[-1]), added_bias)
    if call.outputs == 1:
        return attended.output
    return attended.output, torch.stack((keys.present, values.present))


class Joined(NamedTuple):
    """Keys or values of the past and new ones: as used [B, N, T, H], and as handed on."""

    used: Tensor
    present: Tensor


class Cache(NamedTuple):
    """Keys or values from before: [B, N, P, H] full, or only ``length`` of them in use."""

    past: Tensor | None
    length: int | None

    def joined(self, new: Tensor) -> Joined:
        """With new ones [B, N, L, H] behind those in use."""
        if self.past is None:
            return Joined(new, new)
        if self.length is None:
            both = torch.cat((self.past, new), 2)
            return Joined(both, both)
        end = self.length + new.shape[2]
        present = torch.slice_scatter(self.past, new, 2, self.length, end)
        return Joined(present[:, :, :end], present)


@rule("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    call: Call,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    cache_indirection: Tensor | None = None,
) -> Any:
    """Attention of projections: [B, S, D] to [B, S, Dv], the keys, the values, the scores.

    Args:
        query: [B, S, D], or all three packed as [B, S, N, 3, H].
        key: [B, L, D], keys and values packed as [B, L, N, 2, H], or keys of cross-attention
            [B, N, L, H]; value: the same.
        bias: [Dq + Dk + Dv], added to the projections.
    """
    q, k, v = _three(call, query, key, value, bias)
    length = None if past_sequence_length is None else integer(past_sequence_length)
    keys, values = Cache(past_key, length).joined(k), Cache(past_value, length).joined(v)
    used_k = _followed(keys.used, cache_indirection, length)
    used_v = _followed(values.used, cache_indirection, length)
    biases = all_biases(call, q, q.shape[2], used_k.shape[2], mask, attention_bias)
    attended = attend(q, used_k, used_v, scale_of(call, q.shape[-1]), biases)
    return results(call, attended.output, keys.present, values.present, attended.scores)


@rule("DecoderMaskedMultiHeadAttention", domain=MICROSOFT)
def decoder_masked_multi_head_attention(
    call: Call,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    beam_width: Tensor | None = None,
    cache_indirection: Tensor | None = None,
    bias: Tensor | None = None,
) -> Any:
    """MultiHeadAttention of one new token, over beams that may have changed their past."""
    if call.integer("past_present_share_buffer", 0) == 0:
        past_sequence_length = None
    return multi_head_attention(
        call,
        query,
        key,
        value,
        bias,
        mask,
        attention_bias,
        past_key,
        past_value,
        past_sequence_length,
        cache_indirection,
    )


@rule("DecoderMaskedSelfAttention", domain=MICROSOFT)
def decoder_masked_self_attention(
    call: Call,
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_sequence_length: Tensor | None = None,
    beam_width: Tensor | None = None,
    cache_indirection: Tensor | None = None,
) -> Any:
    """Attention of one new token; the past is [2, B, N, M, H] with a part in use."""
    if call.integer("do_rotary", 0) or cache_indirection is not None:
        raise refused(call, "no rule for rotary positions or beams in this operator")
    length = past_sequence_length if call.integer("past_present_share_buffer", 0) else None
    return attention(call, x, weights, bias, mask, past, attention_bias, length)


def _three(
    call: Call, query: Tensor, key: Tensor | None, value: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [B, N, S, H] of whichever way they are packed."""
    count = call.integer("num_heads")
    if query.dim() == 5:
        parts = list(query.unbind(3))
    elif key is None:
        parts = list(query.chunk(3, dim=-1))
    elif key.dim() == 5:
        parts = [query, *key.unbind(3)]
    else:
        parts = [query, key, _given(call, value)]
    split = [p.transpose(1, 2) if p.dim() == 4 and query.dim() == 5 else p for p in parts]
    if key is not None and key.dim() == 5:
        split = [parts[0], parts[1].transpose(1, 2), parts[2].transpose(1, 2)]
    ready = [p if p.dim() == 4 else heads(p, count) for p in split]
    if bias is not None:
        ready = _biased(ready, bias, key is not None and key.dim() == 4)
    return ready[0], ready[1], ready[2]


def _given(call: Call, value: Tensor | None) -> Tensor:
    if value is None:
        raise refused(call, "keys without values")
    return value


def _biased(parts: list[Tensor], bias: Tensor, cross: bool) -> list[Tensor]:
    """With the biases of the projections; keys of cross-attention have had theirs."""
    sizes = [p.shape[1] * p.shape[3] for p in parts]
    biases = bias.split(sizes)
    shaped = [b.reshape(1, p.shape[1], 1, p.shape[3]) for b, p in zip(biases, parts, strict=True)]
    added = [p + b for p, b in zip(parts, shaped, strict=True)]
    return [added[0], *parts[1:]] if cross else added


def _followed(x: Tensor, indirection: Tensor | None, length: int | None) -> Tensor:
    """Each beam's past from the beam that it came from.

    Args:
        x: [B * beams, N, T, H].
        indirection: [B, beams, M]: whose token each beam has, up to the new one.
    """
    if indirection is None or length is None:
        return x
    batch, beams = indirection.shape[:2]
    apart = x.reshape(batch, beams, *x.shape[1:])
    index = indirection[:, :, :length].long()[:, :, None, :, None]
    index = index.expand(batch, beams, x.shape[1], length, x.shape[3])
    past = torch.gather(apart[:, :, :, :length], 1, index)
    return torch.cat((past, apart[:, :, :, length:]), 3).reshape(x.shape)
