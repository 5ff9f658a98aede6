"""Layer and group normalization with the sums before them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.microsoft.of_onnx import MICROSOFT, results

_EPSILON = 9.999999960041972e-13
"""The default of the fused normalizations: 1e-12 as a float."""


def rms_norm(x: Tensor, scale: Tensor, epsilon: float, axis: int = -1) -> tuple[Tensor, Tensor]:
    """``x / sqrt(mean(x²) + epsilon) * scale`` over the dimensions from ``axis`` on.

    Returns it in the type of scale, and the inverse root in float.
    """
    shape = x.shape[axis % x.dim() :]
    if x.dtype == scale.dtype:
        normed = F.rms_norm(x, shape, scale.reshape(shape), epsilon)
    else:
        normed = (F.rms_norm(x, shape, None, epsilon) * scale).to(scale.dtype)
    return normed, _inverse_rms(x, axis, epsilon)


def _inverse_rms(x: Tensor, axis: int, epsilon: float) -> Tensor:
    dims = tuple(range(axis % x.dim(), x.dim()))
    return torch.rsqrt(x.float().square().mean(dims, keepdim=True) + epsilon)


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor | None, epsilon: float) -> Tensor:
    """Layer normalization over the last dimension."""
    return F.layer_norm(x, gamma.shape, gamma, beta, epsilon)


def _statistics(x: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """The mean and the inverse standard deviation over the last dimension, in float."""
    variance, mean = torch.var_mean(x.float(), -1, correction=0, keepdim=True)
    return mean, torch.rsqrt(variance + epsilon)


@rule("SimplifiedLayerNormalization")
@rule("SimplifiedLayerNormalization", domain=MICROSOFT)
def simplified_layer_normalization(call: Call, x: Tensor, scale: Tensor) -> Any:
    """RMS normalization; it stands in ONNX's own domain, too, where ONNX does not know it."""
    epsilon, axis = call.number("epsilon", 1e-5), call.integer("axis", -1)
    if call.outputs == 1:
        shape = x.shape[axis % x.dim() :]
        if x.dtype == scale.dtype:
            return F.rms_norm(x, shape, scale.reshape(shape), epsilon)
    return results(call, *rms_norm(x, scale, epsilon, axis))


@rule("LayerNormalization", domain=MICROSOFT)
def layer_normalization(call: Call, x: Tensor, scale: Tensor, b: Tensor | None = None) -> Any:
    """ONNX's LayerNormalization, from before ONNX had it."""
    axis, epsilon = call.integer("axis", -1), call.number("epsilon", 1e-5)
    shape = x.shape[axis % x.dim() :]
    y = F.layer_norm(
        x, shape, scale.reshape(shape), None if b is None else b.reshape(shape), epsilon
    )
    if call.outputs == 1:
        return y
    dims = tuple(range(axis % x.dim(), x.dim()))
    variance, mean = torch.var_mean(x.float(), dims, correction=0, keepdim=True)
    return results(call, y, mean, torch.rsqrt(variance + epsilon))


@rule("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    call: Call,
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
) -> Any:
    """``layer_norm(x + skip + bias)``, the mean and inverse deviation, and the sum itself.

    Args:
        skip: [B, S, D], [1, S, D] or [S, D].
    """
    epsilon = call.number("epsilon", _EPSILON)
    total = x + skip if bias is None else x + skip + bias
    y = layer_norm(total, gamma, beta, epsilon)
    if call.outputs == 1:
        return y
    return results(call, y, *_wanted(call, _statistics, total, epsilon), total)


@rule("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(
    call: Call, x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None
) -> Any:
    """``rms_norm(x + skip + bias)``, no mean, the inverse root, and the sum itself."""
    epsilon = call.number("epsilon", _EPSILON)
    total = x + skip if bias is None else x + skip + bias
    y = F.rms_norm(total, gamma.shape, gamma, epsilon)
    if call.outputs == 1:
        return y
    inverse = _wanted(call, lambda t, e: (None, _inverse_rms(t, -1, e)), total, epsilon)
    return results(call, y, *inverse, total)


def _wanted(call: Call, statistics: Any, x: Tensor, epsilon: float) -> Any:
    """Outputs 1 and 2 if the node names one of them."""
    return statistics(x, epsilon) if any(call.node.outputs[1:3]) else (None, None)


@rule("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    call: Call,
    input_ids: Tensor,
    segment_ids: Tensor | None,
    word: Tensor,
    position: Tensor,
    segment: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    position_ids: Tensor | None = None,
) -> Any:
    """The embeddings of BERT [B, S, D], normalized; the count of unmasked words [B]; the sum."""
    places = position[: input_ids.shape[1]]
    if position_ids is not None:
        places = F.embedding(position_ids.long(), position)
    total = F.embedding(input_ids.long(), word) + places
    if segment_ids is not None and segment is not None:
        total = total + F.embedding(segment_ids.long(), segment)
    y = layer_norm(total, gamma, beta, call.number("epsilon", _EPSILON))
    return results(call, y, unmasked_words(input_ids, mask), total)


def unmasked_words(input_ids: Tensor, mask: Tensor | None) -> Tensor:
    """The words that a mask [B, S] keeps, for each of the batch [B] int32; 0 without a mask."""
    if mask is None:
        return torch.zeros(input_ids.shape[0], dtype=torch.int32, device=input_ids.device)
    return (mask == 1).sum(1, dtype=torch.int32)


@rule("GroupNorm", domain=MICROSOFT)
def group_norm(call: Call, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """Group normalization and perhaps SiLU; channels last unless the node says otherwise."""
    last = call.integer("channels_last", 1)
    y = x.movedim(-1, 1) if last else x
    epsilon = call.number("epsilon", 1e-5)
    y = F.group_norm(y, call.integer("groups"), gamma.to(y.dtype), beta.to(y.dtype), epsilon)
    y = F.silu(y) if call.integer("activation") else y
    return y.movedim(1, -1) if last else y


@rule("SkipGroupNorm", domain=MICROSOFT)
def skip_group_norm(
    call: Call, x: Tensor, gamma: Tensor, beta: Tensor, skip: Tensor, bias: Tensor | None = None
) -> Any:
    """GroupNorm of ``x + skip + bias``, and the sum itself."""
    last = call.integer("channels_last", 1)
    if skip.dim() == 2:  # [N, C]
        skip = skip[:, None, None, :] if last else skip[:, :, None, None]
    total = x + skip
    if bias is not None:
        total = total + (bias if last else bias[:, None, None])
    return results(call, group_norm(call, total, gamma, beta), total)
