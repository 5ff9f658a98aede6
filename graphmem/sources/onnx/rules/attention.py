"""Attention. Tensors are [B, heads, length, size], or packed as [B, length, heads * size]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.refusal import refused
from graphmem.sources.onnx.registry import Call, rule

_AFTER_SOFTCAP, _AFTER_MASK, _AFTER_SOFTMAX = 1, 2, 3
"""Values of ``qk_matmul_output_mode``; 0 is the product itself."""


@rule("Attention", since=23, constants=(3,))
def attention(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    lengths: Tensor | None = None,
) -> Any:
    """Softmax of scaled products, times values; a row that sees no key is zero.

    By torch's fused attention, unless a soft cap, a precision of the softmax or the products
    themselves are asked for. ``lengths`` [B] are the keys that are no padding.
    """
    packed = q.dim() == 3
    if packed:
        heads, shared = call.integer("q_num_heads"), call.integer("kv_num_heads")
        q, k, v = _split(q, heads), _split(k, shared), _split(v, shared)
    if past_key is not None and past_value is not None:
        k, v = torch.cat([past_key, k], dim=2), torch.cat([past_value, v], dim=2)
    places = _Places(
        queries=q.shape[2],
        keys=k.shape[2],
        past=0 if past_key is None else past_key.shape[2],
        lengths=lengths,
        causal=call.integer("is_causal", 0) == 1,
        left=call.integer("left_window_size", -1),
        right=call.integer("right_window_size", -1),
    )
    scale = call.number("scale", q.shape[-1] ** -0.5)
    special = call.get("softcap", 0.0) or call.has("softmax_precision") or call.outputs > 3
    if special:
        y, products = _spelled_out(call, q, k, v, _bias(places, mask, q), scale)
    else:
        y, products = _fused(q, k, v, places, mask, scale), None
    results = (_merged(y) if packed else y, k, v, products)
    return results[0] if call.outputs == 1 else results[: call.outputs]


def _split(x: Tensor, heads: int) -> Tensor:
    """[B, length, heads * size] as [B, heads, length, size]."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(1, 2)


def _merged(x: Tensor) -> Tensor:
    """[B, heads, length, size] as [B, length, heads * size]."""
    return x.transpose(1, 2).flatten(2)


@dataclass(frozen=True, slots=True)
class _Places:
    """Which keys a query may see by their places alone.

    Query i stands at i + offset: after the past, or at the end of the keys that are no padding.
    """

    queries: int
    keys: int
    past: int
    lengths: Tensor | None
    causal: bool
    left: int
    right: int

    @property
    def is_free(self) -> bool:
        """Whether every query sees every key."""
        return self.lengths is None and not self.causal and self.left < 0 and self.right < 0

    @property
    def is_lower(self) -> bool:
        """Whether it is torch's own causal mask."""
        plain = self.lengths is None and not self.past and self.left < 0 and self.right < 0
        return plain and self.causal

    def allowed(self, device: torch.device) -> Tensor:
        """Booleans, [queries, keys] or [B, 1, queries, keys]."""
        key = torch.arange(self.keys, device=device)
        at = torch.arange(self.queries, device=device).unsqueeze(1)
        if self.lengths is None:
            at = at + self.past
            seen = torch.ones(self.queries, self.keys, dtype=torch.bool, device=device)
        else:
            lengths = self.lengths.reshape(-1, 1, 1, 1)
            at = at + (self.past or lengths - self.queries)
            seen = (key < lengths).expand(-1, -1, self.queries, -1)
        if self.causal:
            seen = seen & (key <= at)
        if self.left >= 0:
            seen = seen & (key >= at - self.left)
        return seen & (key <= at + self.right) if self.right >= 0 else seen


def _padded_mask(mask: Tensor, keys: int) -> Tensor:
    """A mask with as many keys as there are; those that it lacks are masked."""
    if mask.dim() == 1:
        mask = mask.unsqueeze(0)
    lacking = keys - mask.shape[-1]
    if lacking <= 0:
        return mask
    hidden: Any = False if mask.dtype is torch.bool else -math.inf
    return F.pad(mask, (0, lacking), value=hidden)


def _bias(places: _Places, mask: Tensor | None, q: Tensor) -> Tensor | None:
    """What masks and places add to the products; as booleans where only these are masked."""
    if mask is not None:
        mask = _padded_mask(mask, places.keys)
    if places.is_free:
        return mask
    allowed = places.allowed(q.device)
    if mask is None:
        return allowed
    if mask.dtype is torch.bool:
        return mask & allowed
    return torch.where(allowed, mask, -math.inf)


def _fused(
    q: Tensor, k: Tensor, v: Tensor, places: _Places, mask: Tensor | None, scale: float
) -> Tensor:
    shared = q.shape[1] != k.shape[1]
    if mask is None and places.is_lower:
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=scale, enable_gqa=shared
        )
    bias = _bias(places, mask, q)
    if bias is not None and bias.dim() == 3:
        bias = bias.unsqueeze(0)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale, enable_gqa=shared)


def _products(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Scaled products of queries and keys, each scaled by the root, as ONNX says."""
    root = math.sqrt(scale)
    return (q * root) @ (k * root).transpose(-1, -2)


def _spelled_out(
    call: Call, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """The output, and the products at the stage that is asked for."""
    k, v = _repeated(k, q.shape[1]), _repeated(v, q.shape[1])
    kept = raw = _products(q, k, scale)
    mode = call.integer("qk_matmul_output_mode", 0)
    cap = call.number("softcap", 0.0)
    scores = cap * torch.tanh(raw / cap) if cap else raw
    kept = scores if mode == _AFTER_SOFTCAP else kept
    if bias is not None:
        hidden = bias.dtype is torch.bool
        scores = scores.masked_fill(~bias, -math.inf) if hidden else scores + bias
    kept = scores if mode == _AFTER_MASK else kept
    wide = scores.to(_softmax_type(call, scores.dtype))
    weights = torch._safe_softmax(wide, dim=-1).to(q.dtype)  # zeros where all is masked
    return weights @ v, weights if mode == _AFTER_SOFTMAX else kept


def _softmax_type(call: Call, default: torch.dtype) -> torch.dtype:
    number = call.get("softmax_precision")
    dtype = default if number is None else ElementType(number).dtype
    if dtype is None:
        raise refused(call, f"softmax_precision {number} is no type of numbers")
    return dtype


def _repeated(x: Tensor, heads: int) -> Tensor:
    """Keys or values for each head of the queries: those of a group follow each other."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


@rule("FlexAttention", domain="ai.onnx.preview")
def flex_attention(call: Call, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention whose products and probabilities graphs may change."""
    scale = call.number("scale", q.shape[-1] ** -0.5)
    k, v = _repeated(k, q.shape[1]), _repeated(v, q.shape[1])
    wide = torch.float64 if q.dtype is torch.float64 else torch.float32
    scores = _products(q, k, scale).to(_softmax_type(call, wide))
    if "score_mod" in call.bodies:
        (scores,) = call.body("score_mod")(scores)
    weights = torch.softmax(scores, dim=-1)
    if "prob_mod" in call.bodies:
        (weights,) = call.body("prob_mod")(weights)
    return (weights @ v.to(weights.dtype)).to(v.dtype)


@rule("RotaryEmbedding", since=23, constants=(1, 2))
def rotary_embedding(
    call: Call, x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None = None
) -> Tensor:
    """Turns pairs of elements by angles [B, length, size / 2], or [places, size / 2] looked up.

    Pairs are halves of a head's first ``rotary_embedding_dim`` elements, or neighbours.
    """
    packed = x.dim() == 3
    heads = x.unflatten(2, (call.integer("num_heads"), -1)) if packed else x.transpose(1, 2)
    if positions is not None:
        cos, sin = F.embedding(positions, cos), F.embedding(positions, sin)
    cos, sin = cos.unsqueeze(2), sin.unsqueeze(2)
    turned = call.integer("rotary_embedding_dim", 0) or heads.shape[-1]
    part, rest = heads[..., :turned], heads[..., turned:]
    interleaved = call.integer("interleaved", 0) == 1
    a, b = (part[..., 0::2], part[..., 1::2]) if interleaved else part.chunk(2, dim=-1)
    pair = (cos * a - sin * b, sin * a + cos * b)
    made = torch.stack(pair, dim=-1).flatten(-2) if interleaved else torch.cat(pair, dim=-1)
    if turned < heads.shape[-1]:
        made = torch.cat([made, rest], dim=-1)
    return made.flatten(2) if packed else made.transpose(1, 2)


@rule("LinearAttention", since=27)
def linear_attention(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    past: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
) -> Any:
    """Attention by a state [B, kv_heads, key size, value size] that each token changes.

    In float32, token by token: what fused kernels hold for a chunk of tokens is not shown.
    """
    heads, shared = call.integer("q_num_heads"), call.integer("kv_num_heads")
    query, key, value = _split(q, heads).float(), _split(k, shared).float(), _split(v, shared)
    value = value.float()
    scale = call.get("scale", 0.0) or query.shape[-1] ** -0.5
    state_type = q.dtype if past is None else past.dtype
    state = key.new_zeros(*key.shape[:2], key.shape[3], value.shape[3]) if past is None else past
    state = state.float()
    faded = None if decay is None else _split(decay, shared).float().exp().unsqueeze(-1)
    rate = None if beta is None else beta.float().transpose(1, 2).unsqueeze(-1)
    outputs = []
    for token in range(q.shape[1]):
        if faded is not None:
            state = state * faded[:, :, token]
        written = value[:, :, token]
        if rate is not None:
            known = torch.einsum("bhdm,bhd->bhm", state, key[:, :, token])
            written = rate[:, :, token] * (written - known)
        state = state + key[:, :, token].unsqueeze(-1) * written.unsqueeze(-2)
        read = _repeated(state, heads)
        outputs.append(torch.einsum("bhd,bhdm->bhm", query[:, :, token], read) * scale)
    y = _merged(torch.stack(outputs, dim=2)).to(q.dtype)
    return (y, state.to(state_type)) if call.outputs > 1 else y
