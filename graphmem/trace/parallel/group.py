"""A process group of any size in one process: torch's own "fake" backend, which sends nothing.

Source: torch/testing/_internal/distributed/fake_pg.py and torch/csrc/distributed/c10d/
FakeProcessGroup.hpp (torch 2.13): every collective is done at once, and no tensor is changed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from graphmem.errors import UsageError


@contextmanager
def fake_ranks(ranks: int, rank: int = 0) -> Iterator[DeviceMesh]:
    """This process as one of ``ranks``; nothing of it is left afterwards.

    Raises:
        UsageError: if the process already is one rank of a real group.
    """
    if dist.is_initialized():
        raise UsageError(
            f"ranks {ranks}: torch.distributed is in use in this process; analyze in another one"
        )
    from torch.testing._internal.distributed.fake_pg import FakeStore  # registers the backend

    hook = sys.excepthook  # init_process_group puts the rank before every line of a traceback
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    try:
        yield init_device_mesh("cpu", (ranks,))
    finally:
        dist.destroy_process_group()
        sys.excepthook = hook
