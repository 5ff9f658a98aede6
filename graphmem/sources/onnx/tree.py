"""The tree of submodules that the names of a graph's nodes say.

Node ``/layer1/conv/Conv`` becomes ``layer1.conv.Conv``. A part that is taken, or that means
something to torch, gets a number: ``graph_2``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from torch import Tensor, fx, nn

from graphmem.sources.onnx.names import UniqueNames, identifier

_MOST_PARTS = 12
"""Levels of a tree; a name of more parts keeps the rest in one."""

MODULE_NAMES = frozenset(dir(nn.Module()))
GRAPH_MODULE_NAMES = frozenset(dir(fx.GraphModule(nn.Module(), fx.Graph())))


@dataclass(frozen=True, slots=True)
class _Container:
    """A module that holds others, the path that leads to it, and the names it has given."""

    module: nn.Module
    path: str
    names: UniqueNames
    containers: dict[str, _Container] = field(default_factory=dict)

    def inner(self, part: str) -> _Container:
        """The container of this name, made if there is none."""
        found = self.containers.get(part)
        if found is None:
            name, module = self.names.of(part), nn.Module()
            self.module.add_module(name, module)
            found = _Container(module, self.below(name), UniqueNames(MODULE_NAMES))
            self.containers[part] = found
        return found

    def below(self, name: str) -> str:
        """The path of something in it."""
        return f"{self.path}.{name}" if self.path else name


class ModuleTree:
    """Puts modules in their places below ``root``, a graph module without its graph.

    Time is linear in their number. (A ``GraphModule`` that is made of a finished tree attaches
    all of it once more.)
    """

    def __init__(self) -> None:
        self.root = fx.GraphModule(nn.Module(), fx.Graph())
        self._top = _Container(self.root, "", UniqueNames(GRAPH_MODULE_NAMES))

    def add(self, name: str, module: nn.Module) -> str:
        """Add the module of the node ``name``, and give its path."""
        at, last = self._place(name)
        own = at.names.of(last)
        at.module.add_module(own, module)
        return at.below(own)

    def add_buffer(self, name: str, tensor: Tensor) -> str:
        """Add a tensor at the top, and give its name."""
        own = self._top.names.of(identifier(name))
        self.root.register_buffer(own, tensor)
        return own

    def _place(self, name: str) -> tuple[_Container, str]:
        parts = [part for part in re.split(r"[/.]", name) if part] or ["node"]
        if len(parts) > _MOST_PARTS:
            parts = [*parts[: _MOST_PARTS - 1], "_".join(parts[_MOST_PARTS - 1 :])]
        at = self._top
        for part in parts[:-1]:
            at = at.inner(identifier(part))
        return at, identifier(parts[-1])
