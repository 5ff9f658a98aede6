"""Inputs: nested values of any shape, with their tensors replaced."""

from __future__ import annotations

import copy
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass, transform_subclass

from graphmem.report import InputInfo
from graphmem.sources.inputs import InputSpec, as_inputs
from graphmem.trace import known, sparse
from graphmem.trace.hollow import hollow_like, twin

Call = tuple[tuple[Any, ...], dict[str, Any]]


def as_call(inputs: Any, kwargs: Mapping[str, Any] | None) -> Call:
    """Positional and keyword arguments, from what ``analyze`` takes as ``inputs``.

    With ``kwargs``, ``inputs`` holds the positional arguments alone; else see
    ``sources.inputs.as_inputs``.
    """
    if kwargs is None:
        made = as_inputs(inputs)
        return made.args, dict(made.kwargs)
    return _positional(inputs), as_inputs(dict(kwargs)).kwargs


def _positional(inputs: Any) -> tuple[Any, ...]:
    if inputs is None:
        return ()
    return as_inputs(inputs if type(inputs) in (tuple, list) else (inputs,)).args


def replace(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """A copy of a nested value with its tensors and specs replaced by ``leaf``."""
    if isinstance(value, Tensor | InputSpec):
        return leaf(value)
    if isinstance(value, UserDict):
        batch = copy.copy(value)
        batch.data = replace(value.data, leaf)
        return batch
    if isinstance(value, dict):
        return _like_dict(value, {key: replace(item, leaf) for key, item in value.items()})
    if isinstance(value, tuple):
        items = [replace(item, leaf) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, list):
        return type(value)(replace(item, leaf) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        made = copy.copy(value)
        for field in fields(value):
            object.__setattr__(made, field.name, replace(getattr(value, field.name), leaf))
        return made
    return value


def _like_dict(original: dict[Any, Any], items: dict[Any, Any]) -> Any:
    if type(original) is dict:
        return items
    made = copy.copy(original)
    for key, item in items.items():
        made[key] = item
    return made


def stand_in(value: Tensor | InputSpec, dtype: torch.dtype | None) -> Tensor:
    """What the traced model is given for an input.

    A small tensor with data keeps its values; everything else is hollow. Floating-point
    inputs take ``dtype`` where one is asked for.
    """
    if isinstance(value, InputSpec):
        if value.fill is not None:
            return stand_in(value.materialize(), dtype)
        meta = torch.empty(value.shape, dtype=_wanted(value.dtype, dtype), device="meta")
        return hollow_like(meta)
    wanted = _wanted(value.dtype, dtype)
    if is_traceable_wrapper_subclass(value):
        return transform_subclass(value, lambda _, part: stand_in(part, dtype))
    if value.layout is not torch.strided:
        return sparse.with_parts(value, lambda part: stand_in(part, dtype))
    if value.device.type != "meta" and known.is_small(value) and known.is_real(value.cpu()):
        made = value.detach().to("cpu", copy=True).to(wanted)
    else:
        made = hollow_like(twin(value).to(wanted))
    return made.requires_grad_(value.requires_grad)


def _wanted(dtype: torch.dtype, asked: torch.dtype | None) -> torch.dtype:
    return asked if asked is not None and dtype.is_floating_point else dtype


def real_input(value: Tensor | InputSpec, dtype: torch.dtype | None) -> Tensor:
    """An input with data on the CPU, for a real run: a copy of what was given."""
    tensor = value.example() if isinstance(value, InputSpec) else value
    if tensor.device.type == "meta":
        tensor = torch.zeros(tensor.shape, dtype=tensor.dtype)
    made = tensor.detach().to("cpu", copy=True).to(_wanted(tensor.dtype, dtype))
    return made.requires_grad_(tensor.requires_grad)


def named(call: Call, parameters: list[str]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a call with their names: ``x``, ``batch.mask``, ``0.1``."""
    args, kwargs = call
    for position, value in enumerate(args):
        name = parameters[position] if position < len(parameters) else str(position)
        yield from _named(name, value)
    for name, value in kwargs.items():
        yield from _named(name, value)


def _named(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _named(f"{name}.{key}", item)
    elif isinstance(value, list | tuple):
        for position, item in enumerate(value):
            yield from _named(f"{name}.{position}", item)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _named(f"{name}.{field.name}", getattr(value, field.name))


def info(call: Call, parameters: list[str]) -> tuple[InputInfo, ...]:
    """The inputs as a report lists them."""
    return tuple(
        InputInfo(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        for name, tensor in named(call, parameters)
    )
