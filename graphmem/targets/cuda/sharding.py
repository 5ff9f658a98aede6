"""Copies between many tensors and one, which FSDP2 makes around its collectives.

Where all is dense and of one dtype, one kernel copies. It takes its tables of int64 on the GPU:
addresses and sizes of the tensors, and which tensor each block of threads works on.

Source: aten/src/ATen/native/cuda/TensorShape.cu (torch 2.13): ``pack_vecs``,
``get_chunk_cat_metadata`` and ``split_with_sizes_copy_out_cuda_contiguous_no_cast``; the other
way ATen/native/TensorShape.cpp, ``_pad_chunk``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from graphmem.devices import Gpu
from graphmem.devices.attributes import attributes
from graphmem.options import Target
from graphmem.targets.cuda.calls import argument
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call, scratch

_INT64 = 8
_THREADS = 128  # BLOCK_SIZE
_TILE = 16 * _THREADS  # BYTES_PER_THREAD * BLOCK_SIZE


@scratch("aten::_chunk_cat", target=Target.CUDA)
def chunk_cat(call: Call) -> tuple[int, ...]:
    """Seven tables; or, of several dtypes that are not bfloat16 into float32, padded copies.

    Inputs: tensors, dim, num_chunks; ``out`` by name.
    """
    tensors, dim, chunks = call.args[0], call.args[1], call.args[2]
    out: Layout = call.kwargs.get("out", tensors[0])
    same = tensors[0].dtype is out.dtype
    widened = (tensors[0].dtype, out.dtype) == (torch.bfloat16, torch.float32)
    if not (same or widened):
        return padded(tensors, dim, chunks)
    sizes = [_padded_numel(t, dim, chunks) * out.dtype.itemsize // chunks for t in tensors]
    blocks = sum(-(-size // _TILE) for size in sizes)
    return ((4 * len(tensors) + 2 * (len(tensors) + 1) + blocks) * _INT64,)


@scratch("aten::split_with_sizes_copy", target=Target.CUDA)
def split_copy(call: Call) -> int:
    """Five tables, whose blocks are as many as keep the GPU busy.

    Inputs: self, split_sizes, dim; ``out`` by name.
    """
    source: Layout = call.args[0]
    splits: Sequence[int] = call.args[1]
    dim: int = argument(call, 2, "dim", 0) % len(source.size)
    below = math.prod(source.size[dim + 1 :]) * source.dtype.itemsize
    sizes = [split * below for split in splits]
    tile = _TILE * _iterations(sizes, math.prod(source.size[:dim]), call.gpu)
    blocks = sum(-(-size // tile) for size in sizes)
    return (3 * len(splits) + len(splits) + 1 + blocks) * _INT64


def _iterations(sizes: Sequence[int], chunks: int, gpu: Gpu) -> int:
    """How often a thread copies 16 bytes of one chunk (``iters_per_chunk``)."""
    threads = attributes(gpu)["maxThreadsPerSM"]
    most = int(gpu.multiprocessors * threads / _THREADS * 2.0)
    factor = -(-sum(-(-size // _TILE) for size in sizes) * chunks // most)
    return -(-factor // min(math.ceil(math.sqrt(factor)), chunks))


def padded(tensors: Sequence[Layout], dim: int, chunks: int) -> tuple[int, ...]:
    """Copies of those tensors whose size is no multiple of the chunks, with zeros at the end."""
    padded_sizes = ((t, _padded_numel(t, dim, chunks)) for t in tensors)
    return tuple(n * t.dtype.itemsize for t, n in padded_sizes if n != t.numel)


def _padded_numel(tensor: Layout, dim: int, chunks: int) -> int:
    size = tensor.size[dim]
    return tensor.numel // size * (-(-size // chunks) * chunks)
