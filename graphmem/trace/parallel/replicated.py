"""DistributedDataParallel: torch's own, on the model under trace, as one rank of a group.

Its buckets are what torch makes: the first of 1 MiB, the others of ``bucket_cap_mb``, made anew
in the order of the gradients after the first backward. Gradients are copied into them, or are
views of them.

Source: torch/nn/parallel/distributed.py, torch/csrc/distributed/c10d/reducer.cpp (torch 2.13).
"""

from __future__ import annotations

from typing import Any

import torch
import torch._C._distributed_c10d as c10d
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from graphmem.options import Options


def replicated(model: nn.Module, options: Options, *, really: bool) -> nn.Module:
    """The model in DistributedDataParallel.

    Args:
        really: it is to be run. The "fake" backend gives no result that the reducer could take,
            so a communication hook gives it each bucket as it is.
    """
    made = DistributedDataParallel(
        model,
        bucket_cap_mb=options.bucket_cap_mb,
        gradient_as_bucket_view=options.bucket_view,
    )
    if really:
        made.register_comm_hook(None, _as_it_is)
    return made


def _as_it_is(_: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


# The reducer asks for these annotations as they are, not as text.
_as_it_is.__annotations__ = {
    "bucket": c10d.GradBucket,
    "return": torch.futures.Future[torch.Tensor],
}
