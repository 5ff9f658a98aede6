"""What a session holds on the GPU: the plan of one with the CUDA provider.

From the same graph, sizes and weights as the CPU provider's plan:

- nodes without a CUDA kernel, and those that work on shapes, stay on the host
  (``runtime.cuda.placement``), with nodes between that copy (``graphmem.ort.copies``);
- what lies on the host has no bytes here;
- every weight that a node of the device reads is allocated in the arena, one after another;
- inputs are copied by each run: the caller gives them on the host (``session.run`` of NumPy
  arrays), and takes the outputs from there;
- kernels of the device have the buffers of ``serving.cuda_scratch``.

Source: ``SaveInitializedTensors`` in onnxruntime/core/framework/session_state_utils.cc and
``CopyInputsAcrossDevices`` in utils.cc; ONNX Runtime 1.31.1's own provider on a stand-in for
CUDA's runtime (``tools/ort_cuda``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from graphmem.ort import Call, Execution, Graph, Node, Setup
from graphmem.ort.copies import FROM_HOST, TO_HOST, Side, Split, split
from graphmem.serving.assemble import Assembled
from graphmem.serving.results import NOTHING, Result
from graphmem.serving.weights import Held
from graphmem.sources.onnx import model as plain
from graphmem.sources.onnx.runtime.cuda.memory import ALIASES, IN_PLACE, host_inputs, host_outputs
from graphmem.sources.onnx.runtime.cuda.placement import SMALL_ELEMENTS, Candidate, on_cuda

Scratch = Callable[[plain.Node, Mapping[str, Result]], tuple[int, ...]]
"""The blocks that a kernel of the device takes for itself, in bytes."""


@dataclass(frozen=True, slots=True)
class OnDevice:
    """The device's part of a session.

    ``host`` are the names of the nodes that run on the host, ``copies`` how many copy,
    ``device`` the nodes that run on the device.
    """

    assembled: Assembled
    host: frozenset[str]
    copies: int
    device: tuple[plain.Node, ...]


def on_device(
    assembled: Assembled,
    model: plain.Model,
    scratch: Scratch,
    *,
    numbers: Mapping[tuple[str, ...], int] | None = None,
    reserve: bool = False,
) -> OnDevice:
    """The plan of a session with the CUDA provider.

    Args:
        assembled: the same session's with the CPU provider.
        model: the model that it runs.
        scratch: what kernels take.
        numbers: the index in ONNX Runtime's graph of each node, by its outputs; bodies have none.
        reserve: weights are taken outside of the arena's regions.
    """
    maker = _Maker(assembled, model, scratch, numbers or {})
    execution = maker.execution(assembled.execution, model.graph, frozenset(), ())
    weights = {n: w for n, w in assembled.weights.items() if n in maker.weights and w.nbytes}
    held = tuple(Held(n, "", Setup(w.nbytes, in_region=not reserve)) for n, w in weights.items())
    made = replace(
        assembled,
        execution=execution,
        held=held,
        dropped=frozenset(assembled.weights) - weights.keys(),
        results={**assembled.results, **maker.results},
    )
    return OnDevice(made, frozenset(maker.host), maker.copies, tuple(maker.device))


@dataclass(slots=True)
class _Known:
    """What is found once for each graph; ``nodes`` are the plain ones, by position."""

    graph: Graph
    nodes: list[plain.Node]
    sides: list[Side]
    split: Split


@dataclass(slots=True)
class _Maker:
    whole: Assembled
    model: plain.Model
    scratch: Scratch
    numbers: Mapping[tuple[str, ...], int]
    results: dict[str, Result] = field(default_factory=dict)
    weights: set[str] = field(default_factory=set)
    host: set[str] = field(default_factory=set)
    device: list[plain.Node] = field(default_factory=list)
    copies: int = 0
    _known: dict[int, _Known] = field(default_factory=dict)

    def execution(
        self,
        one: Execution,
        graph: plain.Graph,
        outer_on_host: frozenset[str],
        small: tuple[str, ...],
    ) -> Execution:
        """One run of a graph, on the device.

        Args:
            outer_on_host: the values of the graphs around it that lie on the host.
            small: their initializers that are small.
        """
        small = (*small, *(n for n, w in graph.weights.items() if w.numel <= SMALL_ELEMENTS))
        known = self._found(one, graph, outer_on_host, small)
        made, values = known.split.graph, known.split.graph.values
        for copy, name in known.split.copies.items():
            self.results[copy] = self._result(name)
        on_host = {name for name, value in values.items() if value.on_host}
        names = [n for node in made.nodes for n in node.outputs if n]
        sizes = {n: one.nbytes.get(known.split.copies.get(n, n), 0) for n in names}
        calls = {}
        for at, origin in enumerate(known.split.origins):
            if origin is not None:
                inner = one.calls.get(origin, Call()).inner
                bodies = tuple(
                    self.execution(
                        body, _body(known.nodes[origin], body), frozenset(on_host), small
                    )
                    for body in inner
                )
                calls[at] = self._call(known, origin, one.calls.get(origin, Call()), bodies)
        return Execution(
            made,
            {n: 0 if n in on_host else size for n, size in sizes.items()},
            one.key,
            calls,
            {} if made.parent else self._copied(known.split),
        )

    def _found(
        self,
        one: Execution,
        graph: plain.Graph,
        outer_on_host: frozenset[str],
        small: tuple[str, ...],
    ) -> _Known:
        if id(one.graph) in self._known:
            return self._known[id(one.graph)]
        nodes = self._plain_nodes(one.graph, graph)
        taken = on_cuda(
            [
                self._candidate(node, mine)
                for node, mine in zip(nodes, one.graph.nodes, strict=True)
            ],
            one.graph.inputs,
            small,
        )
        sides = [_side(node, is_taken) for node, is_taken in zip(nodes, taken, strict=True)]
        own = replace(one.graph, nodes=tuple(map(_with_pairs, one.graph.nodes, nodes, sides)))
        found = [self.numbers.get(node.outputs) for node in one.graph.nodes]
        numbers = [number for number in found if number is not None]
        known = numbers if len(numbers) == len(found) and not one.graph.parent else None
        parted = split(own, sides, outer_on_host, known)
        self._known[id(one.graph)] = _Known(one.graph, nodes, sides, parted)
        self._count(nodes, sides, parted, one.graph)
        return self._known[id(one.graph)]

    def _count(
        self, nodes: list[plain.Node], sides: list[Side], parted: Split, graph: Graph
    ) -> None:
        self.weights |= parted.device_weights | self._outer_weights(graph, sides)
        for node, mine, side in zip(nodes, graph.nodes, sides, strict=True):
            if side.on_device:
                self.device.append(node)
            else:
                self.host.add(mine.name)
        self.host |= {node.name for node in parted.graph.nodes if node.op == TO_HOST}
        self.copies += sum(node.op in (FROM_HOST, TO_HOST) for node in parted.graph.nodes)

    def _outer_weights(self, graph: Graph, sides: list[Side]) -> set[str]:
        """The weights of graphs around this one that its nodes read on the device."""
        read = {
            name
            for node, side in zip(graph.nodes, sides, strict=True)
            for at, name in enumerate(node.inputs)
            if side.on_device and at not in side.host_inputs
        }
        return {n for n in graph.outer if n in self.whole.weights and n in read}

    def _plain_nodes(self, mine: Graph, graph: plain.Graph) -> list[plain.Node]:
        by_outputs = {node.outputs: node for node in graph.nodes}
        return [by_outputs.get(node.outputs) or self._filling(node) for node in mine.nodes]

    def _filling(self, node: Node) -> plain.Node:
        """A node that fills a weight while the model runs: the plain graph has the weight."""
        version = self.model.opsets.get("", 1)
        return plain.Node(node.name, node.op, "", version, node.inputs, node.outputs, {})

    def _candidate(self, node: plain.Node, mine: Node) -> Candidate:
        return Candidate(
            node,
            tuple(self._result(name).element for name in node.inputs),
            tuple(self._result(name).element for name in node.outputs),
            mine.implicit,
        )

    def _result(self, name: str) -> Result:
        return self.whole.results.get(name, NOTHING) if name else NOTHING

    def _copied(self, parted: Split) -> dict[str, int]:
        return {name: self._result(name).nbytes for name in parted.device_inputs}

    def _call(self, known: _Known, origin: int, call: Call, bodies: tuple[Execution, ...]) -> Call:
        """The buffers of a kernel; those that Loop and Scan carry values in are kept.

        Loop's counter and condition lie on the host.
        """
        node, side = known.nodes[origin], known.sides[origin]
        if bodies:
            blocks = call.scratch if side.on_device and node.op == "Scan" else ()
            return replace(call, scratch=blocks, before=len(blocks), inner=bodies)
        if not side.on_device:
            return Call()
        return Call(scratch=self.scratch(node, self.whole.results))


def _side(node: plain.Node, on_device: bool) -> Side:
    return Side(True, host_inputs(node), host_outputs(node)) if on_device else Side(False)


def _with_pairs(mine: Node, node: plain.Node, side: Side) -> Node:
    """A node with the buffers that its kernel of the CUDA provider shares."""
    if not side.on_device:
        return mine
    key = node.domain, node.op
    return replace(mine, aliases=ALIASES.get(key, ()), in_place=IN_PLACE.get(key, ()))


def _body(node: plain.Node, body: Execution) -> plain.Graph:
    """The plain graph of a body that ran: the one that makes the same values."""
    graphs = [graph for _, graph in node.bodies()]
    ends = set(body.graph.outputs)
    return next(g for g in graphs if {v.name for v in g.outputs} == ends)
