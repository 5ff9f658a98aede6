"""Packed sequences: their data is hollow, and how many go on at each step is known.

``_pack_padded_sequence`` gives both; the second, ``batch_sizes``, is on the host in a real
run too, and decides sizes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem.targets.results import fresh
from graphmem.trace.hollow import hollow_results
from graphmem.trace.operator import Dispatched

PACK = torch.ops.aten._pack_padded_sequence.default


def pack(call: Dispatched) -> tuple[Tensor, Tensor]:
    """Data [rows, *] and batch_sizes [steps], from lengths that are known.

    Inputs: input [S, B, *], or [B, S, *] with batch_first; lengths [B], batch_first.
    """
    source, lengths, batch_first = call.args
    _, batch_sizes = PACK(torch.zeros(*source.shape[:2], 1), lengths, batch_first)
    rows = int(lengths.sum())
    return hollow_results(fresh((rows, *source.shape[2:]), source.dtype)), batch_sizes
