"""scaled_dot_product_attention: what the kernel that CUDA chooses takes.

Source: aten/src/ATen/native/transformers/attention.cpp, ``scaled_dot_product_attention``
(torch 2.14); the choice is in ``attention_choice``.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.options import Target
from graphmem.schedule import Unknown
from graphmem.targets import context
from graphmem.targets.cuda.attention_choice import Attention
from graphmem.targets.overrides import override

aten = torch.ops.aten


@override(aten.scaled_dot_product_attention.default, Target.CUDA)
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Run the operators of the backend that CUDA would choose."""
    told = context.current()
    call = Attention(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa, told.gpu)
    choice, why = told.decided(_choice, query, key, value, attn_mask, *call.settings)
    told.chose("scaled_dot_product_attention", choice, why)
    if choice == "flash":
        return _flash(call, scale)
    mask = _additive(attn_mask, query.dtype)
    if choice == "efficient":
        return _efficient(call, mask, scale)
    if choice == "cudnn":
        told.note(_CUDNN_WORKSPACE)
        return _cudnn(call, mask, scale)
    result: Tensor = aten._scaled_dot_product_attention_math.default(
        query, key, value, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]
    return result


def _choice(*arguments: Any) -> tuple[str, str]:
    return Attention(*arguments).choice()


def _flash(call: Attention, scale: float | None) -> Tensor:
    """Head dimensions are padded to a multiple of 8."""
    head = call.q.shape[-1]
    padded = [_padded(t, 8) for t in (call.q, call.k, call.v)]
    result: Tensor = aten._scaled_dot_product_flash_attention.default(
        *padded,
        call.dropout_p,
        call.is_causal,
        False,
        scale=1 / math.sqrt(head) if scale is None else scale,
    )[0]
    return result[..., :head] if head % 8 else result


def _efficient(call: Attention, mask: Tensor | None, scale: float | None) -> Tensor:
    """A mask whose rows are not aligned is padded, and expanded to all heads."""
    if mask is not None:
        shape = (call.q.shape[0], call.q.shape[1], call.q.shape[2], call.k.shape[2])
        mask = _aligned(mask, 8).expand(shape)
    result: Tensor = aten._scaled_dot_product_efficient_attention.default(
        call.q,
        call.k,
        call.v,
        mask,
        call.requires_grad(),
        call.dropout_p,
        call.is_causal,
        scale=scale,
    )[0]
    return result


_CUDNN_WORKSPACE = Unknown(
    "the workspace that cuDNN's attention plans ask for",
    "scaled_dot_product_attention",
    "none, beside the front end's fp32 sums in backward",
)


def _cudnn(call: Attention, mask: Tensor | None, scale: float | None) -> Tensor:
    result: Tensor = aten._scaled_dot_product_cudnn_attention.default(
        call.q,
        call.k,
        call.v,
        mask,
        call.requires_grad(),
        call.dropout_p,
        call.is_causal,
        False,
        scale=scale,
    )[0]
    return result


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A boolean mask as one that is added (``convert_boolean_attn_mask``)."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    hidden = torch.full((), -math.inf, dtype=dtype, device=mask.device)
    return torch.where(mask, 0.0, hidden)


def _missing(size: int, multiple: int) -> int:
    return -size % multiple


def _padded(tensor: Tensor, multiple: int) -> Tensor:
    short = context.current().decided(_missing, tensor.shape[-1], multiple)
    return F.pad(tensor, (0, short)) if short else tensor


def _aligned(mask: Tensor, multiple: int) -> Tensor:
    """Rows that start at multiples of ``multiple`` elements (``pad_bias``)."""
    short = context.current().decided(_missing, mask.shape[-1], multiple)
    return F.pad(mask, (0, short))[..., : mask.shape[-1]] if short else mask
