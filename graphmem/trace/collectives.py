"""Collectives of torch.distributed: nothing is sent, and what would be received lies there.

``c10d`` operators write on tensors that they are given, and return them with a ``Work`` that
is waited for. An analysis sees one rank, and its work is done at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._ops import OpOverload

from graphmem.trace import known
from graphmem.trace.operator import Dispatched
from graphmem.trace.replaced import replaced

if TYPE_CHECKING:
    from graphmem.trace.recorder import Recorder  # it imports this file


def concerns(func: OpOverload) -> bool:
    """Whether an operator is a collective that returns work."""
    return func.namespace == "c10d" and "Work" in str(func._schema.returns[-1].type)


def result(call: Dispatched) -> Any:
    """The tensors that are written, and work that is done."""
    from torch._C import _distributed_c10d as c10d

    written = call.args[0] if call.args else None
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(list(known.tensors_in(written)))
    work = c10d._create_work_from_future(future).boxed()  # type: ignore[attr-defined]
    return work if len(call.func._schema.returns) == 1 else (written, work)


@contextmanager
def propagation_unseen(recorder: Recorder) -> Iterator[None]:
    """DTensor asks fake tensors for the shape of a result, which is no operator of the run.

    Source: torch/distributed/tensor/_sharding_prop.py (torch 2.13).
    """
    module = sys.modules.get("torch.distributed.tensor._sharding_prop")
    if module is None:  # nobody has imported DTensor
        yield
        return
    name = "_propagate_tensor_meta_non_cached"
    original = getattr(module.ShardingPropagator, name)

    def unseen(*args: Any) -> Any:
        with recorder.paused():
            return original(*args)

    with replaced(module.ShardingPropagator, name, unseen):
        yield


@contextmanager
def parameters_agree() -> Iterator[None]:
    """Ranks are taken to hold parameters of the same shapes: no kernel reads them to compare."""
    name = "_verify_params_across_processes"
    if not hasattr(dist, name):  # torch is built without torch.distributed
        yield
        return
    with replaced(dist, name, lambda *_: None):
        yield
