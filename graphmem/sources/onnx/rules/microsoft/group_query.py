"""Attention whose groups of queries share keys: GroupQueryAttention."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx.refusal import refused
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.microsoft.attention import heads, merged, scale_of
from graphmem.sources.onnx.rules.microsoft.of_onnx import MICROSOFT, results
from graphmem.sources.onnx.rules.microsoft.position import rotate
from graphmem.sources.onnx.values import integer


class _Places(NamedTuple):
    """Where new tokens stand: ``before`` [B] come first; ``queries`` [B, S] are their places."""

    before: Tensor
    queries: Tensor


@rule("GroupQueryAttention", domain=MICROSOFT, constants=(7, 8, 12, 13))
def group_query_attention(
    call: Call,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    seqlens_k: Tensor,
    total_sequence_length: Tensor,
    cos_cache: Tensor | None = None,
    sin_cache: Tensor | None = None,
    position_ids: Tensor | None = None,
    attention_bias: Tensor | None = None,
    head_sink: Tensor | None = None,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    q_norm_weight: Tensor | None = None,
    k_norm_weight: Tensor | None = None,
) -> Any:
    """Causal attention with a cache: output [B, S, N * H], keys, values [B, Nk, T, H], scores.

    Args:
        query: [B, S, N * H], or queries, keys and values side by side.
        seqlens_k: [B], all tokens of each sequence so far, less one.
        total_sequence_length: the longest of them; T is this, or the cache's length if larger.

    Source: onnxruntime/contrib_ops/cpu/bert/gqa_attention_base.h.
    """
    if k_scale is not None or call.integer("sliding_window_cache", 0):
        raise refused(call, "no rule for a quantized cache or one of the window's size")
    q, k, v = _parts(call, query, key, value)
    if q_norm_weight is not None and k_norm_weight is not None:
        epsilon = call.number("qk_norm_epsilon", 1e-6)
        q = F.rms_norm(q, q_norm_weight.shape, q_norm_weight, epsilon)
        k = F.rms_norm(k, k_norm_weight.shape, k_norm_weight, epsilon)
    total = integer(total_sequence_length)
    places = _places(seqlens_k, q.shape[2], total)
    if call.integer("do_rotary", 0) and cos_cache is not None and sin_cache is not None:
        positions = places.queries if position_ids is None else position_ids.long()
        cos, sin = cos_cache[positions][:, None], sin_cache[positions][:, None]
        interleaved = bool(call.integer("rotary_interleaved", 0))
        q, k = (rotate(x, cos, sin, interleaved) for x in (q, k))
    present_k = _present(past_key, k, places, total)
    present_v = _present(past_value, v, places, total)
    output, scores = _attend(call, q, present_k, present_v, places, attention_bias, head_sink)
    return results(call, output, present_k, present_v, scores)


def _parts(
    call: Call, query: Tensor, key: Tensor | None, value: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    count, shared = call.integer("num_heads"), call.integer("kv_num_heads")
    if key is None or value is None:
        size = query.shape[-1] // (count + 2 * shared)
        query, key, value = query.split([count * size, shared * size, shared * size], dim=-1)
    return heads(query, count), heads(key, shared), heads(value, shared)


def _places(seqlens_k: Tensor, new: int, total: int) -> _Places:
    """A first prompt has nothing before it, whatever the lengths of its sequences."""
    lengths = seqlens_k.reshape(-1).long() + 1
    before = torch.zeros_like(lengths) if new == total else lengths - new
    steps = torch.arange(new, device=seqlens_k.device)
    return _Places(before, before[:, None] + steps)


def _present(past: Tensor | None, new: Tensor, places: _Places, total: int) -> Tensor:
    """The cache [B, Nk, T, H] with the new keys or values behind each sequence's own."""
    batch, shared, _, size = new.shape
    length = total if past is None else max(total, past.shape[2])
    if past is None or past.shape[2] == 0:
        base = new.new_zeros(batch, shared, length, size)
    else:
        old = torch.arange(past.shape[2], device=new.device) < places.before[:, None]
        base = F.pad(past * old[:, None, :, None], (0, 0, 0, length - past.shape[2]))
    index = places.queries[:, None, :, None].expand(new.shape)
    return torch.scatter(base, 2, index, new)


def _attend(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    places: _Places,
    bias: Tensor | None,
    sink: Tensor | None,
) -> tuple[Tensor, Tensor]:
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) if group > 1 else x for x in (k, v))
    scores = torch.matmul(q, k.transpose(-1, -2)) * scale_of(call, q.shape[-1])
    cap = call.number("softcap", 0.0)
    if cap > 0:
        scores = torch.tanh(scores / cap) * cap
    if bias is not None:
        scores = scores + F.pad(bias, (0, k.shape[2] - bias.shape[3]))
    hidden = _hidden(call, places, k.shape[2])[:, None]
    weights = _softmax(call, scores.masked_fill(hidden, float("-inf")), sink)
    output = merged(torch.matmul(weights, v))
    if call.outputs < 4 or call.integer("qk_output", 0) == 2:
        return output, weights
    return output, scores.masked_fill(hidden, 0.0)


def _hidden(call: Call, places: _Places, keys: int) -> Tensor:
    """[B, S, T]: keys after the query, or before its window."""
    at = torch.arange(keys, device=places.queries.device)
    here = places.queries[:, :, None]
    if not call.integer("causal", 1):
        return at >= places.queries[:, -1:, None] + 1 + torch.zeros_like(here)
    window = call.integer("local_window_size", -1)
    hidden = at > here
    return hidden | (at <= here - window) if window > 0 else hidden


def _softmax(call: Call, scores: Tensor, sink: Tensor | None) -> Tensor:
    """Softmax, with one more term in the sum if there is a sink."""
    if sink is None and call.integer("smooth_softmax", -1) != 1:
        return torch.softmax(scores, -1)
    shape = (*scores.shape[:-1], 1)
    extra = scores.new_zeros(shape) if sink is None else sink.reshape(1, -1, 1, 1).expand(shape)
    return torch.softmax(torch.cat((scores, extra.to(scores.dtype)), -1), -1)[..., :-1]
