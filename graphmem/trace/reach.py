"""What a callable can reach: the models and optimizers of the user's own step."""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

# Enough for any trainer object; a bound so that a callable that reaches the whole program
# does not search it all.
_MOST_OBJECTS = 100_000
_TREE = frozenset({"_modules", "_parameters", "_buffers"})


@dataclass(slots=True)
class Found:
    """Root modules and tensors with the names they go by, and optimizers.

    ``in_datasets`` are the ids of tensors that a ``torch.utils.data.Dataset`` holds.
    """

    modules: list[tuple[str, nn.Module]] = field(default_factory=list)
    optimizers: list[torch.optim.Optimizer] = field(default_factory=list)
    tensors: list[tuple[str, Tensor]] = field(default_factory=list)
    in_datasets: set[int] = field(default_factory=set)


def reachable(step: Callable[..., Any]) -> Found:
    """The modules, optimizers and tensors that a step uses.

    Looked for in its closure, the globals it names, its ``self``, the arguments of a
    ``functools.partial``, and in the attributes and containers of what is found there. A
    module inside of a found module is part of it.
    """
    modules: dict[int, tuple[str, nn.Module]] = {}
    optimizers: dict[int, torch.optim.Optimizer] = {}
    tensors: list[tuple[str, Tensor]] = []
    in_datasets: set[int] = set()

    def inside(name: str, value: Any) -> list[tuple[str, Any]]:
        if isinstance(value, nn.Module | torch.optim.Optimizer | Tensor):
            return []
        parts = list(_parts(name, value))
        if id(value) in in_datasets:
            in_datasets.update(id(part) for _, part in parts)
        return parts

    for name, value in _walk(step, inside):
        if isinstance(value, Dataset):
            in_datasets.add(id(value))
        if isinstance(value, nn.Module):
            modules[id(value)] = (name, value)
        elif isinstance(value, torch.optim.Optimizer):
            optimizers[id(value)] = value
        elif isinstance(value, Tensor):
            tensors.append((name, value))
    inner = {id(m) for _, root in modules.values() for m in root.modules() if m is not root}
    roots = [pair for key, pair in modules.items() if key not in inner]
    return Found(roots, list(optimizers.values()), tensors, in_datasets)


def held(start: Any) -> Iterator[tuple[str, Tensor]]:
    """The tensors that a callable or a module reaches, with the names they go by.

    Looked for as by ``reachable``, and in what modules hold besides their own parameters and
    buffers: attributes, hooks, gradients.
    """
    found = _walk(start, _held_by)
    return ((name, value) for name, value in found if isinstance(value, Tensor))


def _held_by(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What is in an object, in modules besides their own parameters and buffers."""
    if isinstance(value, Tensor):
        return
    if not isinstance(value, nn.Module):
        yield from _parts(name, value)
        return
    yield from value._modules.items()
    yield from (pair for pair in vars(value).items() if pair[0] not in _TREE)
    gradients = ((own, p.grad) for own, p in value._parameters.items() if p is not None)
    yield from ((f"{own}.grad", g) for own, g in gradients if g is not None)


def _walk(
    start: Any, inside: Callable[[str, Any], Iterable[tuple[str, Any]]]
) -> Iterator[tuple[str, Any]]:
    """All objects from ``start`` on, each once with a name, the near ones first.

    Args:
        inside: what is in an object, by name; asked for once the object was given out.
    """
    queue: deque[tuple[str, Any]] = deque([("step", start)])
    seen: set[int] = set()
    while queue and len(seen) < _MOST_OBJECTS:
        name, value = queue.popleft()
        if id(value) not in seen:
            seen.add(id(value))
            yield name, value
            queue.extend(inside(name, value))


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, functools.partial):
        yield name, value.func
        yield from ((name, item) for item in (*value.args, *value.keywords.values()))
    elif isinstance(value, types.MethodType):
        yield name, value.__func__
        yield "self", value.__self__
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, dict):
        for key, item in list(value.items()):
            own = str(key) if isinstance(key, str | int) else name  # a tensor can't be printed
            yield (f"{name}.{own}" if isinstance(item, Tensor) else own), item
    elif isinstance(value, list | tuple | set | frozenset | deque):
        yield from ((f"{name}.{i}", item) for i, item in enumerate(value))
    elif hasattr(value, "__dict__") and not isinstance(value, type | types.ModuleType):
        yield from ((str(key), item) for key, item in list(vars(value).items()))


def _of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in _names(code):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    yield from (("default", item) for item in function.__defaults__ or ())


def _names(code: types.CodeType) -> Iterator[str]:
    """The global names in a function and in the functions defined inside of it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)
