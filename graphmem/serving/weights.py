"""What a session keeps of a model's weights in its arena before the first run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from graphmem.ort import Setup
from graphmem.ort.pattern import aligned
from graphmem.serving.results import GraphCall
from graphmem.sources.onnx import model as plain
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.runtime.packers import Constants
from graphmem.sources.onnx.runtime.packing import SMALL_BYTES, Repeats, packed


@dataclass(frozen=True, slots=True)
class Held:
    """A weight in the arena: its name, and the node that packs it, or "" for a copy."""

    weight: str
    packed_by: str
    setup: Setup


class Kept:
    """The weights of a model, which of them its session copies, and which its kernels pack.

    ``weights`` are by name, ``readers`` the first node that reads one.

    Args:
        filled: weights that nodes fill while the model runs: they are no initializers.
        packs: kernels pack their weights.
        in_block: all weights of a graph lie in one block of the arena.
        has_amx: of the processor.
    """

    def __init__(
        self, filled: frozenset[str], *, packs: bool, in_block: bool, has_amx: bool = False
    ) -> None:
        self.filled = filled
        self.packs = packs
        self.has_amx = has_amx
        self.in_block = in_block
        self.weights: dict[str, plain.Weight] = {}
        self.readers: dict[str, str] = {}
        self._repeats = Repeats()
        self._setup: list[Held] = []
        self._read: dict[str, int] = {}
        self._read_packed: dict[str, int] = {}

    @cached_property
    def dropped(self) -> frozenset[str]:
        """The weights that nothing reads any more once they are packed."""
        return frozenset(n for n, count in self._read_packed.items() if count == self._read[n])

    def held(self) -> tuple[Held, ...]:
        """What was noted; the copy of a small weight is given back once nothing reads it."""
        return tuple(
            replace(one, setup=replace(one.setup, is_dropped=True))
            if not one.packed_by and one.weight in self.dropped
            else one
            for one in self._setup
        )

    def graph(
        self,
        graph: plain.Graph,
        outer: Mapping[str, plain.Weight],
        call: GraphCall,
        elements: Mapping[str, ElementType],
    ) -> None:
        """Note what the session of a graph keeps of its weights, and what its kernels pack.

        A graph's own come first, then those of its bodies. In a block of the arena each weight
        lies at a multiple of 256 bytes, besides the copies of small ones.

        Args:
            graph: the graph.
            outer: the weights of the graphs around it.
            call: a run of it.
            elements: the types of the values of the graphs around it.
        """
        own = {n: w for n, w in graph.weights.items() if n not in self.filled}
        visible = {**outer, **own}
        known = {**elements, **_elements(graph, call)}
        self.weights |= own
        for weight in own.values():
            if 0 < weight.nbytes <= SMALL_BYTES:
                self._setup.append(Held(weight.name, "", Setup(weight.nbytes)))
            if weight.nbytes and self.in_block:
                self._setup.append(Held(weight.name, "", Setup(aligned(weight.nbytes))))
        for node in graph.nodes:
            self._pack(
                node,
                {p: visible[n] for p, n in enumerate(node.inputs) if n in visible},
                {p: known[n] for p, n in enumerate(node.inputs) if n in known},
            )
        for node in graph.nodes:
            ran = dict(call.bodies.get(node.outputs, ()))
            for name, body in reversed([*node.bodies()]):  # as measured: else_branch comes last
                self.graph(body, visible, ran.get(name, GraphCall()), known)

    def _pack(
        self,
        node: plain.Node,
        own: Mapping[int, plain.Weight],
        elements: Mapping[int, ElementType],
    ) -> None:
        for weight in own.values():
            self._read[weight.name] = self._read.get(weight.name, 0) + 1
            self.readers.setdefault(weight.name, node.name)
        if not self.packs:
            return
        for position, made in packed(node, Constants(own, elements, self.has_amx)).items():
            weight = own[position]
            made = self._repeats.marked(node, weight, made)
            setup = Setup(made.nbytes, made.in_region, made.is_freed, made.temporary)
            self._setup.append(Held(weight.name, node.name, setup))
            if made.nbytes:
                self._read_packed[weight.name] = self._read_packed.get(weight.name, 0) + 1


def _elements(graph: plain.Graph, call: GraphCall) -> dict[str, ElementType]:
    """The element types of a graph's own values, as far as its file and a run of it know them."""
    stated = graph.known_types()
    found = {n: t.element for n, t in stated.items() if isinstance(t, plain.TensorType)}
    found |= {name: weight.element for name, weight in graph.weights.items()}
    return found | {n: r.element for n, r in call.results.items() if r.element}
