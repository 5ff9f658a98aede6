"""Targets: what a target's kernels do differently, one small rule each.

``scratch.scratch`` registers what a kernel allocates for itself while it runs,
``results.results`` what it returns where that is not what the CPU's does, and
``overrides.override`` what a composite operator runs in place of the CPU's composition. To
find what is written down of an operator, search this folder for its name.
"""

from __future__ import annotations

import os

import torch
from torch._ops import OpOverload

from graphmem.devices import DEFAULT, Gpu
from graphmem.options import Target
from graphmem.schedule import Unknown
from graphmem.targets import cpu, cuda
from graphmem.targets.context import Context
from graphmem.targets.layout import Layout, layouts
from graphmem.targets.overrides import installed, overrides
from graphmem.targets.results import ResultRule, result_rules
from graphmem.targets.scratch import Call, Rule, scratch_rule, stages

__all__ = [
    "Call",
    "Context",
    "Layout",
    "ResultRule",
    "Rule",
    "cuda",
    "installed",
    "layouts",
    "not_modelled",
    "overrides",
    "result_rules",
    "rule_of",
    "stages",
    "workspace_of",
]


def rule_of(func: OpOverload, target: Target) -> Rule | None:
    """The scratch rule of an operator on a target: its own, or that of its kind."""
    own = scratch_rule(target, func._schema.name)
    if own is not None:
        return own
    if target is Target.CPU and torch.Tag.pointwise in func.tags:
        return cpu.pointwise
    return None


def workspace_of(func: OpOverload, target: Target, gpu: Gpu) -> int:
    """The bytes that a library takes when a thread first runs the operator, and keeps."""
    if target is Target.CUDA and func in cuda.cublas.USES_CUBLAS:
        return cuda.cublas.workspace_bytes(gpu, os.environ)
    return 0


def not_modelled(target: Target, gpu: Gpu | None) -> tuple[Unknown, ...]:
    """What this version does not know of a target's kernels.

    Args:
        gpu: the GPU that the user named; None if one is assumed.
    """
    if target is Target.CPU:
        return ()
    return _OTHER_KERNELS if gpu is not None else (_NO_GPU_NAMED, *_OTHER_KERNELS)


_NO_GPU_NAMED = Unknown("the GPU, as --device names none", "", f"an {DEFAULT.name}")
_OTHER_KERNELS = (
    Unknown(
        "what other CUDA kernels do differently",
        "every operator but attention and dropout",
        "the tensors of the CPU's operators",
    ),
)
