"""Gradients of embeddings: sorting the indices, and partial sums of rows in fp32.

Source: aten/src/ATen/native/cuda/Embedding.cu (``embedding_dense_backward_cuda``),
EmbeddingBackwardKernel.cu (``embedding_backward_cuda_kernel``, as of torch 2.11) and
EmbeddingBag.cu. That torch 2.14 sorts above 3,072 indices on every GPU, and has the kernel
with atomic additions, was read in its libtorch_cuda.so.
"""

from __future__ import annotations

import torch

from graphmem.devices import Gpu
from graphmem.options import Target
from graphmem.schedule import Scratch
from graphmem.targets.cuda import cub
from graphmem.targets.cuda.calls import argument, copy_bytes
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call, scratch

_NEVER_SORTED = 3072
_ROWS_PER_PARTIAL = 10  # NROWS_PER_THREAD
_MAX_BLOCK = 1024  # MAX_BLOCK_SIZE of SortingCommon.cuh
_ATOMIC_BLOCKS_PER_MULTIPROCESSOR = 4  # MAX_ATOMIC_ACCUM_BLOCKS_PER_SM
_COUNTER = 8
_BAG_MAX = 2  # EmbeddingBagMode::MAX


@scratch("aten::embedding_dense_backward", target=Target.CUDA)
def embedding_backward(call: Call) -> Scratch:
    """Few indices are added directly; above 3,072 they are sorted, and rows summed in parts.

    Inputs: grad_output [..., D], indices [...], num_weights, padding_idx, scale_grad_by_freq.
    """
    grad, indices = call.args[0], call.args[1]
    by_frequency = bool(argument(call, 4, "scale_grad_by_freq", False))
    copies = copy_bytes(indices), copy_bytes(grad)
    if indices.numel <= _NEVER_SORTED and not by_frequency:
        return (copies,)
    return _sorted(call, grad, indices, copies, counted=by_frequency, bags=False)


@scratch("aten::_embedding_bag_backward", target=Target.CUDA)
def embedding_bag_backward(call: Call) -> Scratch:
    """As for an embedding, but always sorted; the mode max adds directly.

    Inputs: grad [bags, D], indices [N], offsets, offset2bag, bag_size, maximum_indices,
    num_weights, scale_grad_by_freq, mode, sparse, ...
    """
    return _bags(call, bool(call.args[7]), call.args[8])


@scratch("aten::_embedding_bag_dense_backward", target=Target.CUDA)
def embedding_bag_dense_backward(call: Call) -> Scratch:
    """What ``_embedding_bag_backward`` calls, where a program has it.

    Inputs: grad [bags, D], indices [N], offset2bag, bag_size, maximum_indices, num_weights,
    scale_grad_by_freq, mode, ...
    """
    return _bags(call, bool(call.args[6]), call.args[7])


def _bags(call: Call, by_frequency: bool, mode: int) -> Scratch:
    grad, indices = call.args[0], call.args[1]
    copies = copy_bytes(grad), copy_bytes(indices)
    if mode == _BAG_MAX or not indices.numel:
        return (copies,)
    return _sorted(call, grad, indices, copies, counted=by_frequency, bags=True)


def _sorted(
    call: Call, grad: Layout, indices: Layout, copies: tuple[int, ...], *, counted: bool, bags: bool
) -> Scratch:
    """``radix_sort_pairs``, ``unique_by_key``, ``exclusive_sum``, then the partial sums."""
    n, item = indices.numel, indices.dtype.itemsize
    each = n * item
    table: Layout = call.result
    segments = min(n, table.size[0])
    partials = n // _ROWS_PER_PARTIAL + segments
    temporary = cub.radix_sort(n, item, item, 8 * item, call.gpu)
    held = (*copies, each, each)  # sorted and original positions
    if counted:
        held = (*held, each)
    found = (*held, each, _COUNTER)  # where each row's segment begins, and how many
    offsets = (*found, segments * item, segments * item)
    last = (*offsets, _COUNTER, partials * item)
    return (
        (*held, each, temporary),
        (*found, each, cub.unique_by_key(n, call.gpu)),
        (*offsets, cub.scan(segments, item)),
        (*last, *_sums(grad, table, partials, segments, item, call.gpu, bags=bags)),
    )


def _sums(
    grad: Layout, table: Layout, partials: int, segments: int, item: int, gpu: Gpu, *, bags: bool
) -> tuple[int, ...]:
    """A row for each partial sum; where rows are few, all are added into the table at once.

    That takes the partial sums' rows, and for half types an fp32 table.
    """
    accumulated = max(4, grad.dtype.itemsize)
    width = table.size[1]
    warps = -(-width // 32) * 32
    blocks = -(-segments * warps // min(warps, _MAX_BLOCK))
    atomic = (
        not bags
        and blocks < gpu.multiprocessors * _ATOMIC_BLOCKS_PER_MULTIPROCESSOR
        and partials > 4 * blocks
        and not torch.are_deterministic_algorithms_enabled()
    )
    if not atomic:
        return (partials * width * accumulated,)
    fp32_table = 0 if accumulated == grad.dtype.itemsize else table.numel * accumulated
    return partials * item, fp32_table
