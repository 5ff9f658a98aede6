"""Targets: what a target's kernels do differently, one small rule each.

``scratch.scratch`` registers what a kernel allocates for itself while it runs,
``results.results`` what it returns where that is not what the CPU's does, and
``overrides.override`` what a composite operator runs in place of the CPU's composition. To
find what is written down of an operator, search this folder for its name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
from torch._ops import OpOverload

from graphmem.devices import DEFAULT, Gpu
from graphmem.options import Target
from graphmem.schedule import Unknown
from graphmem.targets import cpu, cuda, one_hot, packed
from graphmem.targets.context import Context
from graphmem.targets.layout import Layout, layouts
from graphmem.targets.overrides import installed, overrides
from graphmem.targets.results import ResultRule, result_rules
from graphmem.targets.scratch import Bytes, Call, Rule, scratch_rule, stages, turns
from graphmem.targets.user_rules import operator_rule

__all__ = [
    "Bytes",
    "Call",
    "Context",
    "Layout",
    "ResultRule",
    "Rule",
    "cuda",
    "installed",
    "layouts",
    "not_modelled",
    "not_reviewed",
    "one_hot",
    "overrides",
    "packed",
    "result_rules",
    "rule_of",
    "stages",
    "turns",
    "workspace_of",
]


def rule_of(func: OpOverload, target: Target) -> Rule | None:
    """The scratch rule of an operator on a target: its own, or that of its kind."""
    user = operator_rule(func._schema.name)
    if user is not None:
        return user.scratch_of
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
    return (_NO_GPU_NAMED,) if target is Target.CUDA and gpu is None else ()


_NO_GPU_NAMED = Unknown("the GPU, as --device names none", "", f"an {DEFAULT.name}")


def not_reviewed(funcs: Iterable[OpOverload], target: Target) -> tuple[Unknown, ...]:
    """A note of the operators that ran and whose kernels on the target nobody looked at."""
    if target is Target.CPU:
        return ()
    names = dict.fromkeys(func._schema.name for func in funcs if not _is_reviewed(func, target))
    if not names:
        return ()
    where = ", ".join(name.replace("::", ".") for name in sorted(names))
    return (Unknown("what CUDA's kernels allocate beside their results", where, "nothing"),)


def _is_reviewed(func: OpOverload, target: Target) -> bool:
    has_rule = rule_of(func, target) is not None or func in result_rules(target)
    return has_rule or func in overrides(target) or cuda.reviewed.allocates_nothing(func)
