"""Tensor parallelism: torch's own ``parallelize_module``, as rank 0 of a group.

Each module that the plan names keeps a part of its weight's rows or columns, and its hooks
exchange activations; all other parameters are whole. As with FSDP the named modules are on the meta
device while torch divides them, and their parts become hollow tensors.

Source: torch/distributed/tensor/parallel/api.py and style.py (torch 2.13 and 2.14).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from graphmem.errors import UsageError
from graphmem.options import nearest
from graphmem.techniques import parts
from graphmem.trace.hollow import hollow_like
from graphmem.trace.matching import find_modules

STYLES: Mapping[str, Callable[[], ParallelStyle]] = {
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
    "sequence": SequenceParallel,
    "embedding_rowwise": lambda: RowwiseParallel(input_layouts=Replicate()),
    "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
}
"""Names of torch's styles: those of transformers' own plans, as far as torch has them."""

Plan = dict[str, str]
"""Paths of modules, and the name of the style of each."""


def plan_of(root: nn.Module, text: str | None) -> Plan:
    """The plan that a user gives, or the one that a model of transformers has.

    Args:
        text: ``"layers.*.up=colwise,layers.*.down=rowwise"``.

    Raises:
        UsageError: naming a pattern or a style that there is none of.
    """
    given = _parsed(text) if text is not None else dict(getattr(root, "tp_plan", None) or {})
    if not given:
        raise UsageError(
            f"tp: {type(root).__name__} has no plan of its own; add tp-plan, such as "
            "'layers.*.up=colwise,layers.*.down=rowwise'"
        )
    plan: Plan = {}
    for pattern, style in given.items():
        if style not in STYLES:
            names = ", ".join(STYLES)
            near = nearest(style, STYLES)
            raise UsageError(f"tp-plan: {pattern}: {style!r} is not one of {names}{near}")
        plan.update(dict.fromkeys(find_modules(root, [pattern], "tp-plan"), style))
    return plan


def _parsed(text: str) -> Plan:
    plan: Plan = {}
    for part in parts(text):
        pattern, separator, style = part.partition("=")
        if not separator:
            raise UsageError(f"tp-plan: {part!r} is not PATTERN=STYLE, such as layers.*.up=colwise")
        plan[pattern] = style
    return plan


def divide(root: nn.Module, plan: Plan, mesh: DeviceMesh) -> None:
    """Divide the modules of a plan as they are.

    Raises:
        UsageError: for a module that torch can't divide.
    """
    styles = {path: STYLES[style]() for path, style in plan.items()}
    try:
        parallelize_module(root, mesh, styles, src_data_rank=None)
    except NotImplementedError as error:
        raise UsageError(f"tp-plan: {error}") from error


def divide_hollow(root: nn.Module, plan: Plan, mesh: DeviceMesh) -> None:
    """Divide a model of stand-ins; parts of parameters are hollow."""
    whole: dict[int, Tensor] = {}
    for path in plan:
        for module in root.get_submodule(path).modules():
            _to_meta(module, whole)
    divide(root, plan, mesh)
    made: dict[int, nn.Parameter] = {}
    for module in root.modules():
        for name, parameter in module._parameters.items():
            if isinstance(parameter, DTensor):
                if id(parameter) not in made:
                    made[id(parameter)] = _hollow(parameter, mesh)
                module._parameters[name] = made[id(parameter)]
            elif parameter is not None and id(parameter) in whole:
                raise UsageError(f"tp-plan: {module._get_name()}.{name} can't be divided")


def _to_meta(module: nn.Module, whole: dict[int, Tensor]) -> None:
    for name, parameter in module._parameters.items():
        if parameter is not None and not parameter.is_meta:
            data = torch.empty_like(parameter, device="meta")
            meta = nn.Parameter(data, requires_grad=parameter.requires_grad)
            module._parameters[name], whole[id(meta)] = meta, meta


def _hollow(parameter: Any, mesh: DeviceMesh) -> nn.Parameter:
    """A parameter with a hollow part in the place of the one on meta."""
    made = DTensor.from_local(
        hollow_like(parameter._local_tensor),
        mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
    return nn.Parameter(made.detach(), requires_grad=parameter.requires_grad)
