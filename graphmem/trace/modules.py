"""Which module runs: names for modules, and a note of every call."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphmem.schedule import TOP_LEVEL, Category, Module
from graphmem.trace.recorder import Recorder
from graphmem.trace.replaced import replaced


@dataclass(slots=True)
class _Row:
    """What is known of one module path."""

    type: str
    calls: int = 0
    output_bytes: int = 0


class ModuleCalls:
    """The modules of a trace, by path, and their calls.

    A module that is called and has no name yet (built inside the step) is named by its
    class.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        # By id; weak, because a module that the step makes dies when the step lets go of it.
        self._paths: dict[int, tuple[weakref.ref[nn.Module], str]] = {}
        self._rows: dict[str, _Row] = {TOP_LEVEL: _Row("")}
        self._parameters: dict[str, dict[int, Tensor]] = {}

    def name(self, root: nn.Module, prefix: str = "") -> None:
        """Name a module and all below it by their paths; the first name stands."""
        self._rows[TOP_LEVEL].type = self._rows[TOP_LEVEL].type or root._get_name()
        for path, module in root.named_modules():
            full = ".".join(part for part in (prefix, path) if part) or TOP_LEVEL
            if self._known(module) is None:
                self._paths[id(module)] = (weakref.ref(module), full)
                self._rows.setdefault(full, _Row(module._get_name()))

    def path(self, module: nn.Module) -> str:
        """The path of a module."""
        found = self._known(module)
        if found is None:
            self.name(module, type(module).__name__)
            found = self._paths[id(module)][1]
        return found

    def _known(self, module: nn.Module) -> str | None:
        """The path of a module that has one; None also where another had its id before."""
        reference, path = self._paths.get(id(module), (None, None))
        return path if reference is not None and reference() is module else None

    def own(self, path: str, parameter: Tensor) -> None:
        """Note that a module owns a parameter (one that is shared: the first owner)."""
        self._recorder.places.parameters[id(parameter)] = path
        self._parameters.setdefault(path, {})[id(parameter)] = parameter

    def table(self) -> list[Module]:
        """All modules in the order of their naming, with the number of their calls."""
        return [
            Module(
                path=path,
                type=row.type,
                calls=row.calls,
                parameters=sum(p.numel() for p in self._own_parameters(path)),
                parameter_bytes=sum(
                    p.numel() * p.element_size() for p in self._own_parameters(path)
                ),
                output_bytes=row.output_bytes,
            )
            for path, row in self._rows.items()
        ]

    def _own_parameters(self, path: str) -> list[Tensor]:
        """The parameters of a module: of a DTensor, this rank's part."""
        own = self._parameters.get(path, {}).values()
        return [getattr(parameter, "_local_tensor", parameter) for parameter in own]

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note every module call while the context is active, also if one raises."""
        original = self._original = nn.Module.__call__
        stack = self._recorder.places.stack

        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            path = self.path(module)
            stack.append(path)
            try:
                result = original(module, *args, **kwargs)
            except Exception as error:
                _mark(error, path, module)
                raise
            finally:
                stack.pop()
            self._called(path, result, outermost=not stack)
            return result

        with replaced(nn.Module, "__call__", call):
            yield

    @contextmanager
    def unwatched(self) -> Iterator[None]:
        """Modules are called as they are inside: a compiler reads the code of the call."""
        with replaced(nn.Module, "__call__", self._original):
            yield

    def _called(self, path: str, result: Any, *, outermost: bool) -> None:
        row = self._rows[path]
        row.calls += 1
        tensors = list(all_tensors(result))
        nbytes = sum(t.numel() * t.element_size() for t in tensors)
        row.output_bytes = max(row.output_bytes, nbytes)
        if outermost and torch._C._current_graph_task_id() == -1:
            self._recorder.books.claim(tensors, Category.OUTPUTS)


def _mark(error: Exception, path: str, module: nn.Module) -> None:
    """Note on an exception the innermost module that it came from."""
    if not hasattr(error, "__graphmem_module__"):
        error.__graphmem_module__ = (path, type(module).__name__)  # type: ignore[attr-defined]


def all_tensors(value: Any, depth: int = 8) -> Iterator[Tensor]:
    """The tensors in anything a module may return.

    Containers, dataclasses, model outputs and other plain objects, nested ``depth`` deep.
    """
    if isinstance(value, Tensor):
        yield value
    elif depth:
        for item in _items(value):
            yield from all_tensors(item, depth - 1)


def _items(value: Any) -> Iterable[Any]:
    """What a container or a plain object holds."""
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return value
    if hasattr(value, "__dataclass_fields__"):
        return (getattr(value, name, None) for name in value.__dataclass_fields__)
    if hasattr(value, "__dict__") and not isinstance(value, type | nn.Module | Callable):
        return list(vars(value).values())
    return ()


def category_of(tensor: Tensor) -> Category:
    """Whether a module's own tensor counts as a parameter or a buffer."""
    return Category.PARAMETERS if isinstance(tensor, nn.Parameter) else Category.BUFFERS
