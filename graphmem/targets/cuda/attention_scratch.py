"""What the fused kernels of scaled_dot_product_attention allocate for themselves.

Query is [B, H, Sq, D], key [B, Hk, Sk, D], value [B, Hk, Sk, Dv]; sizes are bytes.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import torch

from graphmem.devices import Gpu
from graphmem.devices.attributes import attributes
from graphmem.options import Target
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Bytes, Call, scratch

_FP32 = 4


@scratch("aten::_scaled_dot_product_flash_attention", target=Target.CUDA)
def flash_forward(call: Call) -> Bytes:
    """Partial results, where keys are split because queries alone don't fill the GPU.

    For each split log-sum-exp [B, H, Sq] and output [B, H, Sq, D], fp32; not with dropout.
    One query of grouped heads counts as that many queries of the key's heads.
    Source: aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp, ``mha_fwd`` and
    ``set_params_splitkv`` (torch 2.14).
    """
    query, key = call.args[0], call.args[1]
    dropout = call.args[3] if len(call.args) > 3 else call.kwargs.get("dropout_p", 0.0)
    batch, heads, rows, head = query.size
    columns = key.size[2]
    if dropout or not columns:
        return 0
    if rows == 1 and heads > key.size[1]:
        rows, heads = heads // key.size[1], key.size[1]
    key_block = 256 if head <= 64 else 128 if head <= 128 else 64
    splits = _flash_splits(
        blocks=batch * heads * -(-rows // 64),
        room=2 * call.gpu.multiprocessors,
        key_blocks=-(-columns // key_block),
    )
    if splits == 1:
        return 0
    vectors = splits * batch * heads * rows
    return (_FP32 * vectors, _FP32 * vectors * _rounded_head(head))


def _flash_splits(blocks: int, room: int, key_blocks: int) -> int:
    """The fewest splits that keep the GPU 85 % as busy as the best number of them does.

    Source: ``num_splits_heuristic`` in flash_api.cpp; it computes in single precision.
    """
    if blocks >= 0.8 * room:
        return 1
    most = min(128, room, key_blocks)
    per_split = [0, *(-(-key_blocks // n) for n in range(1, most + 1))]
    eligible = [n + 1 for n, (before, now) in enumerate(pairwise(per_split)) if before != now]

    def busy(splits: int) -> float:
        waves = blocks * splits / room
        return waves / math.ceil(waves)

    best = max(map(busy, eligible))
    return next(n for n in eligible if busy(n) >= 0.85 * best)


def _rounded_head(head: int) -> int:
    multiple = 32 if head <= 128 else 64
    return -(-head // multiple) * multiple


@scratch("aten::_scaled_dot_product_flash_attention_backward", target=Target.CUDA)
def flash_backward(call: Call) -> Bytes:
    """Row sums and a float accumulator for dq; dk and dv of all query heads under GQA.

    Inputs: grad_out, query, key, value, ...; ``softmax_d`` fp32 [B, H, Sq to 128],
    ``dq_accum`` fp32 [B, Sq to 128, H, D to 32 or 64].
    Source: flash_api.cpp, ``mha_bwd`` (torch 2.14), where algorithms need not be
    deterministic.
    """
    query, key = call.args[1], call.args[2]
    batch, heads, rows, head = query.size
    vectors = batch * heads * -(-rows // 128) * 128
    expanded = 0
    if key.size[1] != heads:
        expanded = batch * heads * key.size[2] * head * query.dtype.itemsize
    return (_FP32 * vectors, _FP32 * vectors * _rounded_head(head), expanded, expanded)


@scratch("aten::_scaled_dot_product_efficient_attention", target=Target.CUDA)
def efficient_forward(call: Call) -> Bytes:
    """An fp32 accumulator [B, Sq, H, Dv] where a half-precision output is not kept in registers.

    That is for head dimensions above 128, the keys of a block. Source: attention.cu,
    ``_efficient_attention_forward``, and include/ATen/native/transformers/cuda/
    mem_eff_attention/kernel_forward.h, ``kNeedsOutputAccumulatorBuffer``.
    """
    query, value = call.args[0], call.args[2]
    if query.dtype is torch.float32 or max(query.size[3], value.size[3]) <= 128:
        return 0
    batch, heads, rows, _ = query.size
    return int(_FP32 * batch * rows * heads * value.size[3])


class _Blocks(NamedTuple):
    """A kernel of memory-efficient attention's backward: its blocks, and the largest head."""

    queries: int
    keys: int
    most_head: int


@scratch("aten::_scaled_dot_product_efficient_attention_backward", target=Target.CUDA)
def efficient_backward(call: Call) -> Bytes:
    """Row sums of grad * out, and a workspace of gradients that several blocks add to.

    Inputs: grad_out, query, key, value, attn_bias, out, ...
    In fp32 the row sums [B, H, Sq] are copied from a reduction of the whole product
    [B, Sq, H, Dv]; these two are gone before the workspace is taken. A gradient that lies
    otherwise than [B, Sq, H, Dv] is copied first.
    Source: aten/src/ATen/native/transformers/cuda/attention_backward.cu,
    ``_efficient_attention_backward``, and mem_eff_attention/kernel_backward.h,
    ``workspace_size`` (torch 2.14).
    """
    grad, query, key, value = call.args[:4]
    dropout = call.args[9] if len(call.args) > 9 else call.kwargs.get("dropout_p", 0.0)
    batch, heads, rows, _ = query.size
    copied = 0 if _is_heads_last(grad) else grad.numel * grad.dtype.itemsize
    sums = _FP32 * batch * heads * rows
    workspace = batch * heads * _workspace_of_a_head(query, key, value, dropout, call.gpu)
    if query.dtype is not torch.float32:
        return ((copied, sums, workspace),)
    product = sums * value.size[3]
    return ((copied, product, sums, sums), (copied, sums, workspace))


def _is_heads_last(grad: Layout) -> bool:
    """Whether [B, H, Sq, Dv] lies in memory as [B, Sq, H, Dv]."""
    _, heads, rows, head = grad.size
    wanted = (rows * heads * head, head, heads * head, 1)
    sizes = zip(grad.stride, wanted, grad.size, strict=True)
    return all(stride == want or size == 1 for stride, want, size in sizes)


def _workspace_of_a_head(
    query: Layout, key: Layout, value: Layout, dropout: float, gpu: Gpu
) -> int:
    batch, heads, rows, head = query.size
    half = query.dtype is not torch.float32
    blocks = _blocks_of(max(head, value.size[3]), half=half, dropout=dropout, gpu=gpu)
    in_registers = half and blocks.most_head <= blocks.queries
    splits = -(-key.size[2] // blocks.keys)
    if batch * heads >= 256 and key.size[2] <= 2 * blocks.keys:
        splits = 1
    accumulated = 0
    if half and not in_registers:
        splits = min(splits, 200 // (batch * heads))
    if torch.are_deterministic_algorithms_enabled():
        splits = 1
    splits = max(splits, 1)
    if half and not in_registers:
        padded = sum(-(-d // blocks.queries) * blocks.queries for d in (head, value.size[3]))
        accumulated = splits * blocks.keys * padded
    tiles = -(-rows // blocks.queries) * -(-head // blocks.keys)
    elements = accumulated + tiles * (16 + _FP32 * blocks.queries * blocks.keys) // _FP32
    return -(-elements // 4) * 4 * _FP32


def _blocks_of(head: int, *, half: bool, dropout: float, gpu: Gpu) -> _Blocks:
    """The first kernel in torch's list that takes the head dimension and fits the GPU.

    Blocks of 128 queries are taken to fit where a block may have 160 KiB of shared memory
    (SM 8.0, 9.0, 10.x) or the architecture's own kernels have them (SM 7.x, half precision).
    Source: mem_eff_attention/kernels/cutlassB.h, ``dispatch_cutlassB``.
    """
    if head <= 64:
        return _Blocks(64, 64, 32 if head <= 32 else 64)
    most = 128 if head <= 128 else 65536
    if gpu.compute_capability < (8, 0):
        return _Blocks(128 if half and gpu.sm >= 70 else 64, 64, most)
    if half and head <= 96 and not dropout and gpu.sm in (86, 89):
        return _Blocks(128, 64, 96)
    if attributes(gpu)["maxSharedMemoryPerBlockOptin"] < 160 * 1024:
        return _Blocks(64, 64, most)
    return _Blocks(128, 128 if half and head <= 128 else 64, most)
