"""From an optimized model and one run's sizes to what ONNX Runtime's planner takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import onnx

from graphmem.ort import Call, Execution, Graph, Node, Value
from graphmem.ort.graph import pattern_key
from graphmem.serving.results import NOTHING, GraphCall, Result
from graphmem.sources.onnx import model as plain
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.runtime.dims import Dims, Types, named_dims
from graphmem.sources.onnx.runtime.kernels import aliases, in_place
from graphmem.sources.onnx.runtime.optimize import bodies, captured, in_order
from graphmem.sources.onnx.runtime.packing import SMALL_BYTES, Packed, packed
from graphmem.sources.onnx.runtime.scratch import Shapes, scratch

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assembled:
    """What a session runs, and what it holds before.

    ``small`` are the bytes of each initializer that lies in the arena, ``packed`` the packed
    weights, by node; ``weights`` are those that stay, by name, ``dropped`` among them those
    that are packed and read by nothing else.
    """

    execution: Execution
    small: tuple[int, ...]
    packed: tuple[tuple[str, Packed], ...]
    weights: Mapping[str, plain.Weight]
    dropped: frozenset[str]
    labels: Mapping[str, str] = field(default_factory=dict)


def assemble(
    proto: onnx.ModelProto,
    original: onnx.ModelProto,
    model: plain.Model,
    call: GraphCall,
    inputs: Mapping[str, Result],
    threads: int = 1,
) -> Assembled:
    """One execution of an optimized model.

    Args:
        proto: the optimized model; ``model`` is the same as plain data.
        original: the model as it was before.
        call: what a run of it gave.
        inputs: the inputs of that run, by name.
        threads: how many work on one operator.
    """
    maker = _Assembler(proto, threads)
    maker.keep(model.graph, {})
    scope = _Scope(dict(inputs), {})
    execution = maker.graph(proto.graph, original.graph, model.graph, call, scope, None)
    return Assembled(
        execution,
        tuple(maker.small),
        tuple(maker.packed.items()),
        maker.weights,
        frozenset(maker.dropped()),
    )


@dataclass(slots=True)
class _Scope:
    """What is known at one place: results and types by name."""

    results: dict[str, Result]
    types: Types
    weights: dict[str, plain.Weight] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Structure:
    """A graph's own part; ``proto`` is held so that it is known again."""

    proto: onnx.GraphProto
    graph: Graph
    nodes: list[onnx.NodeProto]
    types: Types


class _Assembler:
    def __init__(self, proto: onnx.ModelProto, threads: int) -> None:
        self.dims = Dims(proto)
        self.threads = threads
        self.small: list[int] = []
        self.packed: dict[str, Packed] = {}
        self.weights: dict[str, plain.Weight] = {}
        self.read: dict[str, int] = {}
        self.read_packed: dict[str, int] = {}
        self._graphs: dict[int, _Structure] = {}

    def dropped(self) -> Iterable[str]:
        """The weights that nothing reads any more once they are packed."""
        return (n for n, count in self.read_packed.items() if count == self.read[n])

    def graph(
        self,
        proto: onnx.GraphProto,
        original: onnx.GraphProto,
        graph: plain.Graph,
        call: GraphCall,
        outer: _Scope,
        node: onnx.NodeProto | None,
    ) -> Execution:
        """One run of a graph; ``node`` is the one whose body it is."""
        structure = self._structure(proto, original, graph, outer, node)
        made, nodes, types = structure.graph, structure.nodes, structure.types
        results = {**outer.results, **{w: _of_weight(graph.weights[w]) for w in graph.weights}}
        results |= {name: _known(result, types.get(name)) for name, result in call.results.items()}
        scope = _Scope(results, types, {**outer.weights, **graph.weights})
        plain_nodes = {n.outputs: n for n in graph.nodes}
        calls = {}
        for position, one in enumerate(nodes):
            found = self._call(one, plain_nodes[tuple(one.output)], call, scope)
            if found is not None:
                calls[position] = found
        sizes = {n: results.get(n, NOTHING).nbytes for one in nodes for n in one.output if n}
        return Execution(made, sizes, self._key(proto, node, scope), calls)

    def _structure(
        self,
        proto: onnx.GraphProto,
        original: onnx.GraphProto,
        graph: plain.Graph,
        outer: _Scope,
        node: onnx.NodeProto | None,
    ) -> _Structure:
        if id(proto) in self._graphs:
            return self._graphs[id(proto)]
        types = self.dims.graph(proto, outer.types)
        nodes = [n for n in in_order(proto, original) if n.output[0] not in graph.weights]
        reads = () if node is None else _captured(proto)
        made = Graph(
            nodes=tuple(map(_node, nodes)),
            inputs=tuple(v.name for v in graph.inputs),
            outputs=tuple(v.name for v in graph.outputs),
            values=_values(nodes, types, (*reads, *graph.weights)),
            initializers=frozenset(graph.weights),
            outer=reads,
        )
        self._graphs[id(proto)] = _Structure(proto, made, nodes, types)
        return self._graphs[id(proto)]

    def keep(self, graph: plain.Graph, outer: Mapping[str, plain.Weight]) -> None:
        """Note what the session of a graph keeps of its weights, and what its kernels pack."""
        visible = {**outer, **graph.weights}
        self.weights |= graph.weights
        self.small += [w.nbytes for w in graph.weights.values() if 0 < w.nbytes <= SMALL_BYTES]
        for node in graph.nodes:
            own = {p: visible[n] for p, n in enumerate(node.inputs) if n in visible}
            for weight in own.values():
                self.read[weight.name] = self.read.get(weight.name, 0) + 1
            for position, made in packed(node, own).items():
                self.packed[f"{node.name} {node.inputs[position]}"] = made
                name = own[position].name
                self.read_packed[name] = self.read_packed.get(name, 0) + 1
            for _, body in node.bodies():
                self.keep(body, visible)

    def _call(
        self, node: onnx.NodeProto, one: plain.Node, call: GraphCall, scope: _Scope
    ) -> Call | None:
        if bodies(node):
            return self._bodies(node, one, call, scope)
        made = scope.results.get(one.outputs[0], NOTHING)
        found = scratch(
            one,
            Shapes(
                [scope.results.get(n, NOTHING).shape for n in one.inputs],
                [scope.results.get(n, NOTHING).shape for n in one.outputs],
                made.element.nbytes(1) if made.element else 0,
                self.threads,
            ),
        )
        return Call(scratch=found.blocks, before=found.before) if found.blocks else None

    def _bodies(
        self, node: onnx.NodeProto, one: plain.Node, call: GraphCall, scope: _Scope
    ) -> Call:
        protos = {a.name: a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH}
        graphs = dict(one.bodies())
        inner = tuple(
            self.graph(protos[name], protos[name], graphs[name], body, scope, node)
            for name, body in call.bodies.get(one.outputs, ())
        )
        results, kept = _placed(one)
        return Call(inner=inner, results=results, kept=kept)

    def _key(
        self, proto: onnx.GraphProto, node: onnx.NodeProto | None, scope: _Scope
    ) -> int | None:
        """The pattern's key; None where an input is no tensor or its rank is not known."""
        initialized = {w.name for w in proto.initializer}
        names = [v.name for v in proto.input if v.name not in initialized]
        types = {v.name: v.type for v in proto.input}
        if node is not None:
            names += _captured(proto)
            types |= {n: scope.types[n] for n in captured(node) if n in scope.types}
            if any(n not in types for n in captured(node)):
                return None
        if any(not t.tensor_type.HasField("shape") for t in types.values()):
            return None
        shapes = [scope.results.get(n, NOTHING).shape for n in names]
        known = [shape for shape in shapes if shape is not None]
        return pattern_key(known) if len(known) == len(shapes) else None


def _captured(proto: onnx.GraphProto) -> Names:
    """What one body reads of the graphs around it."""
    attribute = onnx.AttributeProto(name="body", type=onnx.AttributeProto.GRAPH)
    attribute.g.CopyFrom(proto)
    return captured(onnx.NodeProto(attribute=[attribute]))


def _placed(node: plain.Node) -> tuple[tuple[int | None, ...], frozenset[int]]:
    """Where a body's outputs are written to, and which are kept until the node is done.

    If hands its own outputs to its body; Scan does so with what it stacks; Loop keeps what it
    stacks until its end, and copies what it carries then.
    Source: onnxruntime/core/providers/cpu/controlflow/{if,loop,scan_utils}.cc.
    """
    outputs = len(node.outputs)
    if node.op == "If":
        return tuple(range(outputs)), frozenset()
    if node.op == "Loop":
        carried = len(node.inputs) - 2
        return (), frozenset(range(1 + carried, 1 + outputs))
    stacked = int(node.attributes.get("num_scan_inputs", 0))
    carried = len(node.inputs) - stacked - (1 if node.version < 9 else 0)
    written = tuple(at if at >= carried else None for at in range(outputs))
    return written, frozenset()


def _node(node: onnx.NodeProto) -> Node:
    label = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
    return Node(
        node.name,
        label,
        tuple(node.input),
        tuple(node.output),
        implicit=captured(node),
        aliases=aliases(node.domain, node.op_type),
        in_place=in_place(node.domain, node.op_type),
        module=node.name or node.op_type,
    )


def _values(nodes: Iterable[onnx.NodeProto], types: Types, others: Names) -> dict[str, Value]:
    names = {n: None for node in nodes for n in (*node.input, *captured(node), *node.output) if n}
    return {name: _value(name, types) for name in (*names, *others)}


def _value(name: str, types: Types) -> Value:
    found = types.get(name)
    kind = "tensor_type" if found is None else found.WhichOneof("value")
    if found is None or kind != "tensor_type":
        return Value(name, None, None if kind != "tensor_type" else 0, kind == "tensor_type")
    element = ElementType(found.tensor_type.elem_type)
    nbytes = None if element is ElementType.STRING else element.nbytes(1)
    return Value(name, named_dims(found), nbytes)


def _of_weight(weight: plain.Weight) -> Result:
    return Result(weight.shape, weight.element)


def _known(result: Result, type_: onnx.TypeProto | None) -> Result:
    """A result with the element type that the file has for it: torch has none below a byte."""
    if type_ is None or not isinstance(result, Result) or result.shape is None:
        return result if isinstance(result, Result) else NOTHING
    element = ElementType(type_.tensor_type.elem_type)
    return result if element is ElementType.UNDEFINED else Result(result.shape, element)
