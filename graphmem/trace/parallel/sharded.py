"""FSDP2: torch's own ``fully_shard`` on the model under trace, as rank 0 of a group.

1. The parameters are put on the meta device, every unit and then the root is given to
   ``fully_shard``, and each parameter's shard becomes a hollow tensor: what the tutorial does
   with ``model.to_empty``. So the whole parameters never stand in memory.
2. All else is torch's: the hooks that gather parameters before a unit's forward and backward,
   the buffers of the collectives, the prefetch of the next unit in backward, the reduce-scatter
   of gradients, the optimizer on the shards.
3. Gathered parameters are temporaries, under their parameter's name; their storages are
   resized to nothing and back (``trace.storages``).
4. The streams that gather and reduce have pools of their own in the allocator
   (``trace.streams``).

Rank 0 holds the most: ``torch.chunk`` gives the last ranks less, or nothing.

Source: torch/distributed/fsdp/_fully_shard/ (torch 2.13 and 2.14).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from graphmem.options import Options
from graphmem.schedule import TOP_LEVEL, Category
from graphmem.trace.hollow import hollow_like
from graphmem.trace.modules import ModuleCalls
from graphmem.trace.recorder import Recorder
from graphmem.trace.replaced import replaced


@contextmanager
def sharded(
    root: nn.Module, units: Mapping[str, nn.Module], mesh: DeviceMesh, options: Options
) -> Iterator[None]:
    """A model, fully sharded; what torch keeps of it elsewhere is undone."""
    from torch.distributed import _composable_state as kept

    policy = MixedPrecisionPolicy(
        param_dtype=_dtype(options.fsdp_param_dtype), reduce_dtype=_dtype(options.fsdp_reduce_dtype)
    )
    arguments: dict[str, Any] = {"mesh": mesh, "mp_policy": policy}
    reshards = None if options.fsdp_reshard else False  # None: torch's choice, all but the root
    try:
        for module in (*units.values(), root):
            fully_shard(module, **arguments, reshard_after_forward=reshards)
        _prefetch(list(units.values()), options.fsdp_prefetch)
        yield
    finally:
        for module in root.modules():
            kept._module_state_mapping.pop(module, None)


def _prefetch(units: list[Any], count: int) -> None:
    """Let each unit gather the ``count`` next ones, as in torch's FSDP2 tutorial.

    They run in the order of ``units``, in backward in the opposite one.
    """
    for i, unit in enumerate(units if count else ()):
        unit.set_modules_to_forward_prefetch(units[i + 1 : i + 1 + count])
        unit.set_modules_to_backward_prefetch(units[max(i - count, 0) : i][::-1])


def _dtype(name: str | None) -> torch.dtype | None:
    found: torch.dtype | None = None if name is None else getattr(torch, name)
    return found


def to_meta(root: nn.Module) -> None:
    """Put the parameters on the meta device; shared ones stay shared."""
    made: dict[int, nn.Parameter] = {}
    for module in root.modules():
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            if id(parameter) not in made:
                data = torch.empty_like(parameter, device="meta")
                made[id(parameter)] = nn.Parameter(data, requires_grad=parameter.requires_grad)
            module._parameters[name] = made[id(parameter)]


def _groups(root: nn.Module) -> Iterator[Any]:
    modules: Iterator[Any] = root.modules()
    for module in modules:
        if hasattr(module, "_get_fsdp_state"):
            yield from module._get_fsdp_state()._fsdp_param_groups


def _parameters(root: nn.Module) -> Iterator[Any]:
    """Every ``FSDPParam``; its group takes what it has for initialised."""
    for group in _groups(root):
        group._reset_sharded_params = True
        yield from group.fsdp_params


def hollow(root: nn.Module) -> None:
    """Give all parameters of a sharded model on meta hollow shards."""
    for parameter in _parameters(root):
        _hollow(parameter)


def _hollow(parameter: Any) -> None:
    """Give an ``FSDPParam`` a hollow shard in the place of the one on meta."""
    local = parameter.sharded_param._local_tensor
    padded = hollow_like(parameter._sharded_param_data)
    shard = padded.view(parameter.padded_sharded_param_size).narrow(
        parameter.fsdp_placement.dim, 0, local.size(parameter.fsdp_placement.dim)
    )
    parameter._sharded_param_data = padded
    is_trained = parameter.sharded_param.requires_grad
    sharded: Tensor = parameter.to_sharded_dtensor(shard)
    parameter.sharded_param = nn.Parameter(sharded, requires_grad=is_trained)
    parameter._setattr_on_modules(parameter.sharded_param)


@contextmanager
def gathered_named(recorder: Recorder, calls: ModuleCalls) -> Iterator[None]:
    """Gathered parameters are temporaries of the module that has the parameter, by its name."""
    from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam

    original: Callable[[Any], None] = FSDPParam.init_unsharded_param

    def init_unsharded_param(parameter: Any) -> None:
        original(parameter)
        info = parameter._module_info
        path = calls.path(info.module)
        name = info.param_name if path == TOP_LEVEL else f"{path}.{info.param_name}"
        recorder.places.parameters[id(parameter._unsharded_param)] = path
        for entry in recorder.ledger.entries_of(parameter.all_gather_outputs):
            entry.settle(Category.TEMPORARIES)
            entry.module, entry.name = path, f"{name} (gathered)"

    with replaced(FSDPParam, "init_unsharded_param", init_unsharded_param):
        yield
