"""Lazy modules: they have no sizes until they are called, so they are called once before.

That call is on hollow tensors and is not part of the analysis, as torch's documentation asks
for a dry run before the optimizer is made. What it made of the modules stands, on meta
tensors, for the time of the analysis.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from graphmem.trace.inputs import Call
from graphmem.trace.observe import observe

_Made = dict[nn.Module, tuple[type[nn.Module], dict[str, Any]]]


@contextmanager
def materialized(model: nn.Module, call: Call) -> Iterator[None]:
    """A model whose lazy modules are what a first call makes of them, on meta tensors."""
    lazy = [module for module in model.modules() if _is_lazy_module(module)]
    if not lazy:
        yield
        return
    made: _Made = {}

    def keep(_: Any) -> None:
        made.update({module: _made(module) for module in lazy if not _is_lazy_module(module)})

    observe(model, call, keep)
    before = {module: (type(module), dict(vars(module))) for module in made}
    _become({module: (kind, _with_tensors(kept)) for module, (kind, kept) in made.items()})
    try:
        yield
    finally:
        _become(before)


def _is_lazy_module(module: nn.Module) -> bool:
    tensors = (*module._parameters.values(), *module._buffers.values())
    return any(tensor is not None and is_lazy(tensor) for tensor in tensors)


def _made(module: nn.Module) -> tuple[type[nn.Module], dict[str, Any]]:
    """What a module is now: its class, and its attributes with ``_Layout`` for tensors."""
    attributes = {
        name: type(value)(value) if isinstance(value, dict) else value
        for name, value in vars(module).items()
    }
    for name in ("_parameters", "_buffers"):
        attributes[name] = {key: _layout(value) for key, value in attributes[name].items()}
    return type(module), attributes


class _Layout(NamedTuple):
    """A tensor of a module; ``trained`` is None for a buffer."""

    size: tuple[int, ...]
    dtype: torch.dtype
    trained: bool | None


def _layout(tensor: Tensor | None) -> _Layout | None:
    if tensor is None:
        return None
    trained = tensor.requires_grad if isinstance(tensor, nn.Parameter) else None
    return _Layout(tuple(tensor.shape), tensor.dtype, trained)


def _with_tensors(attributes: dict[str, Any]) -> dict[str, Any]:
    tensors = {
        name: {key: None if kept is None else _on_meta(kept) for key, kept in held.items()}
        for name, held in attributes.items()
        if name in ("_parameters", "_buffers")
    }
    return {**attributes, **tensors}


def _on_meta(kept: _Layout) -> Tensor:
    data = torch.empty(kept.size, dtype=kept.dtype, device="meta")
    return data if kept.trained is None else nn.Parameter(data, kept.trained)


def _become(modules: _Made) -> None:
    for module, (kind, attributes) in modules.items():
        module.__class__ = kind
        vars(module).clear()
        vars(module).update(attributes)
