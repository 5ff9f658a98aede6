"""Which value gets which buffer: ONNX Runtime's static plan of one graph.

For each output of each node, in the order in which they run:

(1) a graph's output has a buffer of its own, unless a Loop's body only hands it on;
(2) an alias (Reshape and the like) has its input's buffer;
(3) a kernel that may work in place does so if this is the last use of its input's buffer, and
    both have the same element size and the same shape;
(4) else it takes the buffer that was freed last among those of values with the same element
    size and shape on the same device, unless it is a scalar;
(5) else a new one.

A shape is the same if each dimension is the same number or has the same name: sizes that
happen to be equal are not enough. A buffer may be reused after the last node that reads or
writes any of the values on it; those of graph inputs, outer values, initializers and graph
outputs never are.

Source: ``ComputeReuseCount``, ``FindReusableInput``, ``FindReusableTensor``, ``SameSize`` and
``ComputeSingleStreamReusePlan`` in onnxruntime/core/framework/allocation_planner.cc.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum, unique

from graphmem.ort.graph import Graph, Node, Value


@unique
class Kind(Enum):
    """Where a value's bytes are."""

    GIVEN = "given"  # a graph input, an outer value or an initializer
    NEW = "new"
    OUTPUT = "output"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Placing:
    """Of one value; ``buffer`` is the value whose buffer it has, itself where it has its own."""

    kind: Kind
    buffer: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The placing of every value; ``frees[i]`` are the buffers given back after node ``i``."""

    placings: dict[str, Placing]
    frees: tuple[tuple[str, ...], ...]


def make_plan(graph: Graph, *, reuse: bool = True) -> Plan:
    """The plan of a graph.

    Args:
        reuse: rule (4) holds (``SessionOptions.enable_mem_reuse``).
    """
    return _Planner(graph, reuse).plan()


class _Planner:
    def __init__(self, graph: Graph, reuse: bool) -> None:
        self.graph = graph
        self.reuse = reuse
        self.outputs = frozenset(graph.outputs)
        self.uses = _uses(graph)
        given = (*graph.inputs, *graph.outer, *graph.initializers)
        self.placings = {name: Placing(Kind.GIVEN, name) for name in given}
        self.free: list[str] = []

    def plan(self) -> Plan:
        for node in self.graph.nodes:
            for position, name in enumerate(node.outputs):
                if name:
                    self.placings[name] = self._placing(node, position, name)
            for name in (*node.inputs, *node.implicit, *node.outputs):
                if name:
                    self._used(name)
        return Plan(self.placings, self._frees())

    def _used(self, name: str) -> None:
        buffer = self.placings[name].buffer
        self.uses[buffer] -= 1
        if self.uses[buffer] == 0:
            self.free.append(buffer)

    def _placing(self, node: Node, position: int, name: str) -> Placing:
        if name in self.outputs:
            passed = self._passed_on(node)
            return Placing(Kind.SHARED, passed) if passed else Placing(Kind.OUTPUT, name)
        found = self._aliased(node, position) or self._in_place(node, position, name)
        if found is None and self.graph.values[name].is_tensor:
            found = self._freed(name)
        if found is None:
            return Placing(Kind.NEW, name)
        buffer = self.placings[found].buffer
        self.uses[buffer] += self.uses[name]
        return Placing(Kind.SHARED, buffer)

    def _passed_on(self, node: Node) -> str | None:
        """What a Loop's body only hands on, but for the number of the iteration."""
        given = node.inputs[0] if node.inputs else ""
        if self.graph.parent != "Loop" or node.op != "Identity" or given == self.graph.inputs[0]:
            return None
        return given if self.placings[given].kind is Kind.GIVEN else None

    def _aliased(self, node: Node, position: int) -> str | None:
        for source, target in node.aliases:
            if target == position and source < len(node.inputs) and node.inputs[source]:
                return node.inputs[source]
        return None

    def _in_place(self, node: Node, position: int, name: str) -> str | None:
        for source, target in node.in_place:
            if target != position or source >= len(node.inputs) or not node.inputs[source]:
                continue
            given = node.inputs[source]
            if self.uses[self.placings[given].buffer] == 1 and self._same(given, name):
                return given
        return None

    def _freed(self, name: str) -> str | None:
        if not self.reuse or not self.graph.values[name].dims:
            return None
        for at in range(len(self.free) - 1, -1, -1):
            if self._same(self.free[at], name):
                return self.free.pop(at)
        return None

    def _same(self, first: str, second: str) -> bool:
        return _same_size(self.graph.values[first], self.graph.values[second])

    def _frees(self) -> tuple[tuple[str, ...], ...]:
        """The buffers of kind NEW, each after the last node that reads a value on it.

        What no node reads stays until the run ends (``GenerateDeallocationPlan``).
        """
        last: dict[str, int] = {}
        for at, node in enumerate(self.graph.nodes):
            for name in (*node.inputs, *node.implicit):
                if name and self.placings[self.placings[name].buffer].kind is Kind.NEW:
                    last[self.placings[name].buffer] = at
        frees: list[list[str]] = [[] for _ in self.graph.nodes]
        for buffer, at in last.items():
            frees[at].append(buffer)
        return tuple(map(tuple, frees))


def _uses(graph: Graph) -> Counter[str]:
    """How often each value is defined and read, and once more for what is never freed."""
    uses = Counter((*graph.inputs, *graph.outer, *graph.initializers, *graph.outputs))
    for node in graph.nodes:
        uses.update(name for name in (*node.inputs, *node.implicit, *node.outputs) if name)
    return uses


def _same_size(first: Value, second: Value) -> bool:
    return (
        first.element_bytes is not None
        and first.element_bytes == second.element_bytes
        and first.dims is not None
        and first.dims == second.dims
        and first.on_host == second.on_host
    )
