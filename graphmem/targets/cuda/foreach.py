"""Operators on lists of tensors: partial results of norms and maxima.

``clip_grad_norm_`` is one such norm. Others (``_foreach_add_``, fused optimizers, GradScaler's
check) allocate nothing for themselves.
Source: aten/src/ATen/native/cuda/ForeachReduceOp.cu (``foreach_tensor_norm_cuda``,
``foreach_tensor_max_cuda``), ATen/native/cuda/MultiTensorApply.cuh (``kChunkSize``) and
aten/src/ATen/native/ForeachUtils.h (``can_use_fast_route``).
"""

from __future__ import annotations

import math

import torch

from graphmem.options import Target
from graphmem.schedule import Scratch
from graphmem.targets.cuda.calls import argument, like
from graphmem.targets.cuda.reductions import norm_buffers
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call, scratch

_CHUNK = 65536
_FAST_ORDERS = (1, 2, math.inf)


@scratch("aten::_foreach_norm", target=Target.CUDA)
def norms(call: Call) -> Scratch:
    """A partial norm for each chunk of 65,536 elements, as many for each as the largest has.

    Inputs: self (a list), ord, dtype. Where dtypes differ, tensors have gaps or another norm
    is asked for, one after another is reduced by itself.
    """
    tensors: list[Layout] = call.args[0]
    dtype = argument(call, 2, "dtype") or tensors[0].dtype
    if argument(call, 1, "ord", 2) in _FAST_ORDERS and _fast(tensors):
        return ((_chunks(tensors) * (8 if dtype is torch.float64 else 4),),)
    found: Scratch = ()
    for tensor in tensors:
        found += norm_buffers(tensor, range(len(tensor.size)), dtype, call.gpu)
    return found


@scratch("aten::_foreach_max", target=Target.CUDA)
def maxima(call: Call) -> Scratch:
    """A partial maximum for each chunk. Inputs: self (a list)."""
    tensors: list[Layout] = call.args[0]
    return ((_chunks(tensors) * tensors[0].dtype.itemsize,),)


def _chunks(tensors: list[Layout]) -> int:
    return len(tensors) * max(-(-tensor.numel // _CHUNK) for tensor in tensors)


def _fast(tensors: list[Layout]) -> bool:
    """One floating-point dtype, and no gaps."""
    dtype = tensors[0].dtype
    return dtype.is_floating_point and all(
        tensor.dtype is dtype and like(tensor, dtype).stride == tensor.stride for tensor in tensors
    )
