"""DistributedDataParallel: torch's own, on the model under trace, as one rank of a group.

Its buckets are what torch makes: the first of 1 MiB, the others of ``bucket_cap_mb``, made anew
in the order of the gradients after the first backward. Gradients are copied into them, or are
views of them.

Source: torch/nn/parallel/distributed.py, torch/csrc/distributed/c10d/reducer.cpp (torch 2.13).
"""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from graphmem.options import Options


def replicated(model: nn.Module, options: Options) -> nn.Module:
    """The model in DistributedDataParallel."""
    return DistributedDataParallel(
        model,
        bucket_cap_mb=options.bucket_cap_mb,
        gradient_as_bucket_view=options.bucket_view,
    )
