"""Data-parallel wrappers, on one rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DataParallel, DistributedDataParallel

from tests.trace.difficult.cases import Difficult, Loop


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))


@contextmanager
def one_rank() -> Iterator[None]:
    """A process group of this process alone, through a store in memory."""
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def distributed() -> Callable[[], Any]:
    """A step of DistributedDataParallel, made and taken down with its process group."""
    model = _mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        with one_rank():
            wrapped = DistributedDataParallel(model)
            optimizer.zero_grad()
            wrapped(torch.randn(32, 64)).sum().backward()
            optimizer.step()

    return step


DIFFICULT = (Difficult("DataParallel", lambda: DataParallel(_mlp()), lambda: torch.randn(32, 64)),)
LOOPS = (
    # For real a bucket lives until a thread of the process group lets go of it.
    Loop("DistributedDataParallel", distributed, real=False),
)
