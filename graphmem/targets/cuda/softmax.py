"""Softmax with a dtype: fp16 in and fp32 out is one kernel.

So it is under autocast, which asks ``softmax`` and ``log_softmax`` for fp32; of a bf16
input an fp32 copy is made first, as on the CPU. Source: aten/src/ATen/native/SoftMax.cpp,
``softmax`` and ``log_softmax`` (torch 2.13).
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem.options import Target
from graphmem.targets.overrides import override

aten = torch.ops.aten


@override(aten.softmax.int, Target.CUDA)
def softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Run ``_softmax``, on a converted copy where the kernel does not convert."""
    converted, fused = _converted(input, dtype)
    result: Tensor = aten._softmax.default(converted, dim, fused)
    return result


@override(aten.log_softmax.int, Target.CUDA)
def log_softmax(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """As ``softmax``, with ``_log_softmax``."""
    converted, fused = _converted(input, dtype)
    result: Tensor = aten._log_softmax.default(converted, dim, fused)
    return result


def _converted(input: Tensor, dtype: torch.dtype | None) -> tuple[Tensor, bool]:
    """What the kernel reads, and whether it converts fp16 to fp32."""
    if input.dtype is torch.float16 and dtype is torch.float32:
        return input, True
    return (input if dtype is None else aten.to.dtype(input, dtype)), False
