"""Dropout, fused with its mask."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem.options import Target
from graphmem.targets.overrides import override

aten = torch.ops.aten


@override(aten.dropout.default, Target.CUDA)
def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """One kernel makes the result and a mask of one byte an element, which is saved.

    On the CPU the mask is a tensor of the input's dtype. Source: aten/src/ATen/native/
    Dropout.cpp, ``dropout``: ``native_dropout`` if ``is_fused_kernel_acceptable`` (a CUDA
    tensor, 0 < p < 1, not empty), in training.
    """
    if not train or p == 0 or input.numel() == 0:
        return input
    if p == 1:
        return input * torch.zeros_like(input)
    result: Tensor = aten.native_dropout.default(input, p, train)[0]
    return result
