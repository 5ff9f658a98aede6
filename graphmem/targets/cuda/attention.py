"""scaled_dot_product_attention: which kernel CUDA runs, and what it takes.

The choice: of flash, memory-efficient and math attention, in this order, the first whose
conditions hold. Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp,
``select_sdp_backend``; the calls: aten/src/ATen/native/transformers/attention.cpp,
``scaled_dot_product_attention`` (torch 2.13). Not covered: cuDNN's attention, which comes
first on SM 9.0 and 10.x, and nested tensors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.options import Target
from graphmem.targets.layout import Layout
from graphmem.targets.overrides import override
from graphmem.targets.scratch import Call, scratch

aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Attention:
    """One call; q, k and v are [batch, heads, sequence, head dimension]."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    dropout_p: float
    is_causal: bool

    def choice(self) -> str:
        """``"flash"``, ``"efficient"`` or ``"math"``."""
        if self._fits_any() and self._fits_flash():
            return "flash"
        if self._fits_any() and self._fits_efficient():
            return "efficient"
        return "math"

    def _fits_any(self) -> bool:
        """4-D, of one dtype, not empty, and heads that divide (``enable_gqa``)."""
        q, k, v = self.q, self.k, self.v
        return (
            q.dim() == k.dim() == v.dim() == 4
            and q.dtype is k.dtype is v.dtype
            and q.shape[0] == k.shape[0] == v.shape[0]
            and k.shape[1] == v.shape[1]
            and q.shape[1] % k.shape[1] == 0
            and min(q.shape[2], k.shape[2]) > 0
        )

    def _fits_flash(self) -> bool:
        head = self.q.shape[-1]
        return (
            torch.backends.cuda.flash_sdp_enabled()
            and self.mask is None
            and self.q.dtype in _HALF
            and head == self.k.shape[-1] == self.v.shape[-1]
            and head <= 256
            and not (self.is_causal and self.q.shape[2] != self.k.shape[2])
            and self._last_dimension_is_dense(ignore_singleton=True)
        )

    def _fits_efficient(self) -> bool:
        # minimum_gemm_alignment on SM 8: 128 bits of tensor cores.
        alignment = 8 if self.q.dtype in _HALF else 4
        return (
            torch.backends.cuda.mem_efficient_sdp_enabled()
            and self.q.dtype in (*_HALF, torch.float32)
            and self.q.shape[-1] == self.k.shape[-1]
            and self.q.shape[-1] % alignment == 0
            and self.v.shape[-1] % alignment == 0
            and all(t.storage_offset() % alignment == 0 for t in (self.q, self.k, self.v))
            and self._last_dimension_is_dense(ignore_singleton=False)
        )

    def _last_dimension_is_dense(self, *, ignore_singleton: bool) -> bool:
        def dense(tensor: Tensor) -> bool:
            return tensor.stride(-1) == 1 or (ignore_singleton and tensor.shape[-1] == 1)

        mask_is_dense = self.mask is None or self.mask.stride(-1) == 1
        return all(dense(t) for t in (self.q, self.k, self.v)) and mask_is_dense


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
    call = Attention(query, key, value, attn_mask, dropout_p, is_causal)
    choice = call.choice()
    if choice == "flash":
        return _flash(call, scale)
    mask = _additive(attn_mask, query.dtype)
    if choice == "efficient":
        return _efficient(call, mask, scale)
    result: Tensor = aten._scaled_dot_product_attention_math.default(
        query, key, value, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]
    return result


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
    tensors = (call.q, call.k, call.v)
    saves = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    result: Tensor = aten._scaled_dot_product_efficient_attention.default(
        *tensors, mask, saves, call.dropout_p, call.is_causal, scale=scale
    )[0]
    return result


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A boolean mask as one that is added (``convert_boolean_attn_mask``)."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    hidden = torch.full((), -math.inf, dtype=dtype, device=mask.device)
    return torch.where(mask, 0.0, hidden)


def _padded(tensor: Tensor, multiple: int) -> Tensor:
    short = -tensor.shape[-1] % multiple
    return F.pad(tensor, (0, short)) if short else tensor


def _aligned(mask: Tensor, multiple: int) -> Tensor:
    """Rows that start at multiples of ``multiple`` elements (``pad_bias``)."""
    short = -mask.shape[-1] % multiple
    return F.pad(mask, (0, short))[..., : mask.shape[-1]] if short else mask


@scratch("aten::_scaled_dot_product_flash_attention_backward", target=Target.CUDA)
def flash_backward(call: Call) -> int:
    """Row sums and a float accumulator for dq; dk and dv of all query heads under GQA.

    Inputs: grad_out, query [B, H, Sq, D], key [B, Hk, Sk, D], value, ...
    ``softmax_d`` fp32 [B, H, Sq to 128], ``dq_accum`` fp32 [B, Sq to 128, H, D to 32].
    Source: aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp, ``mha_bwd``.
    """
    query: Layout = call.args[1]
    key: Layout = call.args[2]
    batch, heads, rows, head = query.size
    rows_up, head_up = -(-rows // 128) * 128, -(-head // 32) * 32
    nbytes = 4 * batch * heads * rows_up + 4 * batch * rows_up * heads * head_up
    if key.size[1] != heads:
        nbytes += 2 * batch * heads * key.size[2] * head * query.dtype.itemsize
    return nbytes
