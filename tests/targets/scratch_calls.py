"""Calls of operators on meta tensors, and what the scratch rules say of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphmem import devices
from graphmem.devices import Gpu
from graphmem.options import Target
from graphmem.schedule import Scratch
from graphmem.targets import Call, layouts, rule_of, stages

A100 = devices.find("A100-80GB")
H100 = devices.find("H100-80GB")
RTX4090 = devices.find("RTX 4090")


def meta(*size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A contiguous tensor without data."""
    return torch.empty(size, dtype=dtype, device="meta")


def ids(*size: int) -> Tensor:
    """Indices."""
    return meta(*size, dtype=torch.int64)


def scratch_of(
    func: Any, *args: Any, gpu: Gpu = A100, result: Any = None, **kwargs: Any
) -> Scratch:
    """What the rule of an operator on CUDA says of a call.

    Args:
        result: what the operator returns, where its meta kernel can't tell.
    """
    rule = rule_of(func, Target.CUDA)
    assert rule is not None
    given = func(*args, **kwargs) if result is None else result
    return stages(rule(Call(layouts(args), kwargs, layouts(given), gpu)))


def peak(scratch: Scratch) -> int:
    """The most bytes that are alive at one time."""
    return max(map(sum, scratch), default=0)
