"""Packed sequences, padded again: torch's composition, whose lengths are written in C++.

Source: aten/src/ATen/native/PackedSequence.cpp, ``_pad_packed_sequence`` (torch 2.13).
"""

from __future__ import annotations

from itertools import groupby

import torch
from torch import Tensor

from graphmem.options import Target
from graphmem.targets.overrides import override

_PAD = torch.ops.aten._pad_packed_sequence.default


@override(_PAD, Target.CPU)
@override(_PAD, Target.CUDA)
def pad_packed_sequence(
    data: Tensor,
    batch_sizes: Tensor,
    batch_first: bool,
    padding_value: float,
    total_length: int,
) -> tuple[Tensor, Tensor]:
    """Copy runs of steps with as many sequences into a full tensor.

    Inputs: data [rows, *], batch_sizes [steps]. Returns the sequences [S, B, *], or
    [B, S, *] with batch_first, and their lengths [B], which are on the host.
    """
    counts: list[int] = batch_sizes.tolist()
    steps = max(total_length, len(counts))
    output = torch.full(
        (steps, counts[0], *data.shape[1:]), padding_value, dtype=data.dtype, device=data.device
    )
    step = offset = 0
    for count, run in groupby(counts):
        length = len(list(run))
        rows = data[offset : offset + length * count].view(length, count, *data.shape[1:])
        output[step : step + length, :count].copy_(rows)
        step, offset = step + length, offset + length * count
    lengths = torch.tensor([sum(count > i for count in counts) for i in range(counts[0])])
    return (output.transpose(0, 1) if batch_first else output), lengths
