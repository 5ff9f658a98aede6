"""A graph on two devices: where its values lie, and the nodes that copy between them.

1. A node of the device reads its inputs there and leaves its outputs there, but for those that
   its kernel has on the host; a node of the host has all of them on the host.
2. What is made on one side and read on the other gets a node that copies it, once:
   ``MemcpyFromHost`` or ``MemcpyToHost``; so does an input that both sides read.
3. An input that the device alone reads is copied by the run, before its first node. What
   bodies read of the graphs around them is copied by no node.
4. A weight that both sides read is there twice.
5. The copying nodes have higher indices than all others, so that they run as early as the
   order of nodes lets them.

Source: ``TransformerMemcpyImpl`` in onnxruntime/core/optimizer/transformer_memcpy.cc.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from graphmem.ort.graph import Graph, Node
from graphmem.ort.order import Ordered, execution_order

FROM_HOST = "MemcpyFromHost"
TO_HOST = "MemcpyToHost"
_COPY = "_CUDAExecutionProvider"  # the suffix of ``AddCopyNode``


@dataclass(frozen=True, slots=True)
class Side:
    """Where one node runs, and the positions that it has on the host all the same."""

    on_device: bool
    host_inputs: frozenset[int] = frozenset()
    host_outputs: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Split:
    """A graph with its copying nodes.

    ``origins[i]`` is the position that node ``i`` had, None for one that copies.
    ``copies`` maps the name of each value that was added to the one that it is a copy of.
    ``device_weights`` and ``device_inputs`` are those that have bytes on the device from the
    start.
    """

    graph: Graph
    origins: tuple[int | None, ...]
    copies: Mapping[str, str]
    device_weights: frozenset[str]
    device_inputs: tuple[str, ...]


def split(
    graph: Graph,
    sides: Sequence[Side],
    outer_on_host: Iterable[str] = (),
    numbers: Sequence[int] | None = None,
) -> Split:
    """The graph over both devices.

    Args:
        graph: nodes in the order in which they run.
        sides: one for each node.
        outer_on_host: which of the values of the graphs around it lie on the host.
        numbers: the index of each node in ONNX Runtime's graph; where they are not known,
            nodes keep their order as far as copies between them let them.
    """
    if numbers is None:
        numbers = range(0, -len(graph.nodes), -1)
    return _Splitter(graph, sides, frozenset(outer_on_host), numbers).split()


class _Splitter:
    def __init__(
        self,
        graph: Graph,
        sides: Sequence[Side],
        outer_on_host: frozenset[str],
        numbers: Sequence[int],
    ) -> None:
        self.graph = graph
        self.numbers = numbers
        self.sides = sides
        self.outer_on_host = outer_on_host
        self.read_there: set[str] = set()
        self.read_here: set[str] = set()
        self.made_there: set[str] = set()
        self.made_here: set[str] = set()
        for node, side in zip(graph.nodes, sides, strict=True):
            self._note(node, side)

    def _note(self, node: Node, side: Side) -> None:
        for at, name in enumerate(node.inputs):
            on_device = side.on_device and at not in side.host_inputs
            (self.read_there if on_device else self.read_here).add(name)
        for at, name in enumerate(node.outputs):
            on_device = side.on_device and at not in side.host_outputs
            (self.made_there if on_device else self.made_here).add(name)
        for names in (self.read_there, self.read_here, self.made_there, self.made_here):
            names.discard("")

    def split(self) -> Split:
        both = [n for n in self._entering() if n in self.read_there and n in self.read_here]
        from_host = [*both, *sorted(self.made_here & self.read_there)]
        to_host = sorted(self.made_there & self.read_here)
        renamed = {name: name + _COPY for name in (*from_host, *to_host)}
        nodes = [
            _renamed(node, side, renamed)
            for node, side in zip(self.graph.nodes, self.sides, strict=True)
        ]
        nodes += [_copy(FROM_HOST, name, renamed[name]) for name in from_host]
        nodes += [_copy(TO_HOST, renamed[name], name) for name in to_host]
        order = _order(nodes, self.numbers)
        here = self._on_host(renamed, frozenset(from_host))
        values = {n: replace(v, on_host=n in here) for n, v in self.graph.values.items()}
        for name, copy in renamed.items():
            values[copy] = replace(self.graph.values[name], name=copy, on_host=False)
        count = len(self.graph.nodes)
        return Split(
            replace(self.graph, nodes=tuple(nodes[at] for at in order), values=values),
            tuple(at if at < count else None for at in order),
            {copy: name for name, copy in renamed.items()},
            self.graph.initializers & self.read_there,
            tuple(n for n in self.graph.inputs if n not in here),
        )

    def _entering(self) -> list[str]:
        return [n for n in (*self.graph.inputs, *self.graph.outer) if n not in self._weights]

    @property
    def _weights(self) -> frozenset[str]:
        return self.graph.initializers

    def _on_host(self, renamed: Mapping[str, str], from_host: frozenset[str]) -> frozenset[str]:
        """The names that are of the host: all that a node there makes, and what is read there."""
        inputs = {n for n in self.graph.inputs if n not in self.read_there or n in from_host}
        weights = self.graph.initializers - self.read_there
        outer = self.outer_on_host & frozenset(self.graph.outer)
        return frozenset(inputs | weights | outer | self.made_here | set(renamed))


def _renamed(node: Node, side: Side, renamed: Mapping[str, str]) -> Node:
    """A node of the device reads and makes the values of the device."""
    if not side.on_device:
        return node
    inputs = tuple(
        name if at in side.host_inputs else renamed.get(name, name)
        for at, name in enumerate(node.inputs)
    )
    outputs = tuple(
        name if at in side.host_outputs else renamed.get(name, name)
        for at, name in enumerate(node.outputs)
    )
    return replace(node, inputs=inputs, outputs=outputs)


def _copy(op: str, source: str, target: str) -> Node:
    label = f"{op}/{source.removesuffix(_COPY)}"
    return Node(label, op, (source,), (target,), module=label)


def _order(nodes: Sequence[Node], numbers: Sequence[int]) -> list[int]:
    """The order with the copying nodes, which come after those that have a number."""
    if len(nodes) == len(numbers):
        return list(range(len(nodes)))
    later = max(numbers, default=0) + 1
    ordered = [
        Ordered(
            numbers[at] if at < len(numbers) else later + at,
            (*filter(None, node.inputs), *node.implicit),
            tuple(filter(None, node.outputs)),
        )
        for at, node in enumerate(nodes)
    ]
    return execution_order(ordered)
