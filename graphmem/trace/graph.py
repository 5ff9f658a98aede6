"""The step as a ``torch.fx.Graph``: one node an operator, so that every fx tool works on it.

``node.meta`` of an operator holds

- ``operation``: its ``schedule.Operation`` (phase, step, module, source, storages read,
  written, allocated, freed); where it makes its results in turn, its operations in one;
- ``indices``: the range of these operations in the schedule;
- ``storage``: the list of the numbers of its results' storages;
- ``tensor_meta``: shape, dtype and stride of its results, as fx's ShapeProp leaves them.

What stands in memory before the first operation is a placeholder; its ``meta`` has
``storage`` and ``category``.
"""

from __future__ import annotations

import operator
import re
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.passes.shape_prop import _extract_tensor_metadata

from graphmem.schedule import Operation, Schedule
from graphmem.trace import known
from graphmem.trace.hollow import twin
from graphmem.trace.ledger import Entry, Ledger
from graphmem.trace.operator import Dispatched

_NODE = "_graphmem_node"


class GraphBuilder:
    """Builds the graph while a recorder runs."""

    def __init__(self, ledger: Ledger) -> None:
        self.graph = fx.Graph()
        self._ledger = ledger
        self._nodes: dict[range, fx.Node] = {}  # indices of operations -> their node
        self._on_storage: dict[int, list[tuple[Any, fx.Node]]] = {}
        self._first: fx.Node | None = None

    def add(self, indices: range, call: Dispatched, result: Any) -> None:
        """Add an operator that was recorded as the operations of some ``indices``."""
        kwargs = {name: self._of(value) for name, value in call.kwargs.items()}
        node = self.graph.call_function(call.func, tuple(map(self._of, call.args)), kwargs)
        self._nodes[indices] = node
        if isinstance(result, list | tuple):
            for position, item in enumerate(result):
                if isinstance(item, Tensor):
                    part = self.graph.call_function(operator.getitem, (node, position))
                    self._made(item, part)
            node.meta["storage"] = [
                i for item in known.tensors_in(result) for i in self._storages(item)
            ]
        elif isinstance(result, Tensor):
            self._made(result, node)

    def finish(self, schedule: Schedule) -> fx.Graph:
        """The graph, with the operations of the finished schedule in the nodes' meta."""
        for indices, node in self._nodes.items():
            node.meta["operation"] = _joined([schedule.operations[i] for i in indices])
            node.meta["indices"] = indices
        numbers = self._ledger.numbers
        for node in self.graph.nodes:
            if "storage" in node.meta:
                node.meta["storage"] = [numbers[i] for i in node.meta["storage"]]
        self.graph.output(None)
        self.graph.lint()
        return self.graph

    def _made(self, tensor: Tensor, node: fx.Node) -> None:
        node.meta["storage"] = self._storages(tensor)
        node.meta["tensor_meta"] = _metadata(tensor)
        setattr(tensor, _NODE, node)
        for part in known.strided_parts(tensor):
            entry = self._ledger.find(part)
            if entry is not None:
                self._on_storage.setdefault(entry.id, []).append((_layout(part), node))

    def _of(self, value: Any) -> Any:
        """An argument as fx has it."""
        if isinstance(value, Tensor):
            return self._node_of(value)
        if isinstance(value, list | tuple):
            return type(value)(self._of(item) for item in value)
        return value

    def _node_of(self, tensor: Tensor) -> fx.Node:
        """The node that made a tensor.

        C++ code makes aliases that no operator returned (a saved tensor that is unpacked);
        theirs is the latest on the storage with the same layout.
        """
        found: fx.Node | None = getattr(tensor, _NODE, None)
        if found is not None and found.graph is self.graph:
            return found
        entry = self._ledger.find(known.strided_parts(tensor)[0])
        if entry is None:
            raise KeyError("a tensor that the ledger does not know")
        made: fx.Node
        for layout, made in reversed(self._on_storage.get(entry.id, [])):
            if layout == _layout(tensor):
                return made
        if entry.id not in self._on_storage:
            return self._placeholder(entry, tensor)
        size, stride, offset = _layout(tensor)
        base = self._on_storage[entry.id][-1][1]
        made = self.graph.call_function(
            torch.ops.aten.as_strided.default, (base, size, stride, offset)
        )
        return made

    def _placeholder(self, entry: Entry, tensor: Tensor) -> fx.Node:
        name = re.sub(r"\W|^(?=\d)", "_", entry.name or f"{entry.category}_{entry.id}")
        with self.graph.inserting_before(self._start()):
            node = self.graph.placeholder(name)
        self._made(tensor, node)
        node.meta["category"] = entry.category
        return node

    def _start(self) -> fx.Node:
        """The first node that is no placeholder."""
        if self._first is None:
            self._first = next((n for n in self.graph.nodes if n.op != "placeholder"), None)
        return self._first if self._first is not None else self.graph._root

    def _storages(self, tensor: Tensor) -> list[int]:
        entries = [self._ledger.find(part) for part in known.strided_parts(tensor)]
        return [entry.id for entry in entries if entry is not None]


def _joined(parts: list[Operation]) -> Operation:
    """The parts of one operator as one operation."""
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        allocates=tuple(i for part in parts for i in part.allocates),
        frees=tuple(i for part in parts for i in part.frees),
        scratch=tuple(stage for part in parts for stage in part.scratch),
    )


def _layout(tensor: Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset()


def _metadata(tensor: Tensor) -> Any:
    return None if tensor.layout is not torch.strided else _extract_tensor_metadata(twin(tensor))
