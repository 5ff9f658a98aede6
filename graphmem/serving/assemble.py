"""From an optimized model and one run's sizes to what ONNX Runtime's planner takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx

from graphmem.ort import Call, Execution, Graph, Node, Setup, Value
from graphmem.ort.graph import IN_SCRATCH, pattern_key
from graphmem.serving.results import NOTHING, GraphCall, Result
from graphmem.serving.weights import Held, Kept
from graphmem.sources.onnx import model as plain
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.runtime.calls import Shapes
from graphmem.sources.onnx.runtime.dims import Dims, named_dims
from graphmem.sources.onnx.runtime.foreign_shapes import Types
from graphmem.sources.onnx.runtime.kernels import aliases, in_place
from graphmem.sources.onnx.runtime.optimize import bodies, captured, in_order
from graphmem.sources.onnx.runtime.packers import Constants
from graphmem.sources.onnx.runtime.scratch import scratch

Names = tuple[str, ...]
Bytes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Assembled:
    """What a session runs, and what it holds before.

    ``held`` is what it takes of its arena; ``weights`` are all initializers, by name, and
    ``dropped`` among them those that are packed and read by nothing else. ``results`` are of
    all values, ``readers`` the first node that reads a weight.
    """

    execution: Execution
    held: tuple[Held, ...]
    weights: Mapping[str, plain.Weight]
    dropped: frozenset[str]
    results: Mapping[str, Result]
    readers: Mapping[str, str]

    @property
    def setup(self) -> tuple[Setup, ...]:
        """What the session takes of its arena before the first run."""
        return tuple(held.setup for held in self.held)


def assemble(
    proto: onnx.ModelProto,
    original: onnx.ModelProto,
    model: plain.Model,
    call: GraphCall,
    inputs: Mapping[str, Result],
    threads: int = 1,
    *,
    packs: bool = True,
    in_block: bool = False,
    has_amx: bool = False,
) -> Assembled:
    """One execution of an optimized model.

    Args:
        proto: the optimized model; ``model`` is the same as plain data.
        original: the model as it was before.
        call: what a run of it gave.
        inputs: the inputs of that run, by name.
        threads: how many work on one operator.
        packs: kernels pack their weights.
        in_block: all weights of a graph lie in one block of the arena.
        has_amx: of the processor.
    """
    kept = Kept(_filled(proto.graph), packs=packs, in_block=in_block, has_amx=has_amx)
    maker = _Assembler(proto, threads, original, kept)
    maker.kept.graph(model.graph, {}, call, {n: r.element for n, r in inputs.items() if r.element})
    scope = _Scope(dict(inputs), {})
    execution = maker.graph(proto.graph, original.graph, model.graph, call, scope, None)
    return Assembled(
        execution,
        maker.kept.held(),
        maker.kept.weights,
        maker.kept.dropped,
        maker.results,
        maker.kept.readers,
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
    def __init__(
        self,
        proto: onnx.ModelProto,
        threads: int,
        original: onnx.ModelProto,
        kept: Kept,
    ) -> None:
        self.kept = kept
        self.dims = Dims(proto, original)
        self.originals = dict(_named_bodies(original.graph))
        self.threads = threads
        self.results: dict[str, Result] = {}
        self._graphs: dict[int, _Structure] = {}

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
        self.results |= results
        scope = _Scope(results, types, {**outer.weights, **graph.weights})
        plain_nodes = {n.outputs: n for n in graph.nodes}
        calls = {}
        for position, one in enumerate(nodes):
            known = plain_nodes.get(tuple(one.output))  # None: a weight that a node fills
            found = None if known is None else self._call(one, known, call, scope)
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
        nodes = [n for n in in_order(proto, original) if n.op_type != "Constant"]
        reads = () if node is None else _captured(proto)
        made = Graph(
            nodes=tuple(map(_node, nodes)),
            inputs=tuple(v.name for v in graph.inputs),
            outputs=tuple(v.name for v in graph.outputs),
            values=_values(nodes, types, (*reads, *graph.weights)),
            initializers=frozenset(graph.weights) - _made_by(nodes),
            outer=reads,
            parent="" if node is None else node.op_type,
        )
        self._graphs[id(proto)] = _Structure(proto, made, nodes, types)
        return self._graphs[id(proto)]

    def _call(
        self, node: onnx.NodeProto, one: plain.Node, call: GraphCall, scope: _Scope
    ) -> Call | None:
        if bodies(node):
            return self._bodies(node, one, call, scope)
        made = scope.results.get(one.outputs[0], NOTHING)
        given = [scope.results.get(n, NOTHING) for n in one.inputs]
        known = ((p, scope.weights.get(n)) for p, n in enumerate(one.inputs))
        constants = Constants(
            {p: w for p, w in known if w is not None and w.name not in self.kept.filled},
            {p: r.element for p, r in enumerate(given) if r.element},
        )
        found = scratch(
            one,
            Shapes(
                [result.shape for result in given],
                [scope.results.get(n, NOTHING).shape for n in one.outputs],
                made.element.nbytes(1) if made.element else 0,
                self.threads,
                constants,
                self.kept.packs,
            ),
        )
        if not found.blocks:
            return None
        return Call(found.blocks, found.before, found.passing, is_reserved=found.is_reserved)

    def _bodies(
        self, node: onnx.NodeProto, one: plain.Node, call: GraphCall, scope: _Scope
    ) -> Call:
        protos = {a.name: a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH}
        graphs = dict(one.bodies())
        inner: list[Execution] = []
        given = _first_inputs(one, scope.results)
        for name, body in call.bodies.get(one.outputs, ()):
            names = (v.name for v in graphs[name].inputs)
            known = {**scope.results, **dict(zip(names, given, strict=False))}
            original = self.originals.get((node.name, name), protos[name])
            within = replace(scope, results=known)
            inner.append(self.graph(protos[name], original, graphs[name], body, within, node))
            given = _next_inputs(one, graphs[name], body, given)
        results, kept = _placed(one)
        early = self._early(node, inner) if one.op == "If" else frozenset()
        if one.op == "Scan":
            early = frozenset(filter(None, one.outputs))
        blocks = _of_control(one, scope.results, len(inner))
        return Call(blocks, len(blocks), (), tuple(inner), results, kept, early)

    def _early(self, node: onnx.NodeProto, inner: Sequence[Execution]) -> frozenset[str]:
        """The outputs that have their buffer before the body runs: those of known sizes."""
        found = set()
        for body in inner:
            for name, mine in zip(body.graph.outputs, node.output, strict=False):
                dims = body.graph.values[name].dims if name in body.graph.values else None
                if dims is not None and all(isinstance(d, int) for d in dims):
                    found.add(mine)
        return frozenset(found)

    def _key(
        self, proto: onnx.GraphProto, node: onnx.NodeProto | None, scope: _Scope
    ) -> int | None:
        """The pattern's key; None where an input is no tensor.

        Source: ``SessionState::ResolveMemoryPatternFlag`` and ``NodeArg::HasTensorOrScalarShape``.
        """
        initialized = {w.name for w in proto.initializer}
        names = [v.name for v in proto.input if v.name not in initialized]
        if node is not None:
            names += _captured(proto)
            if any(n in self.kept.dropped for n in names):  # what is packed is no tensor any more
                return None
        shapes = [scope.results.get(n, NOTHING).shape for n in names]
        known = [shape for shape in shapes if shape is not None]
        return pattern_key(known) if len(known) == len(shapes) else None


def _made_by(nodes: Iterable[onnx.NodeProto]) -> frozenset[str]:
    return frozenset(name for node in nodes for name in node.output)


def _filled(graph: onnx.GraphProto) -> frozenset[str]:
    """The weights that nodes fill while the model runs: they are no initializers."""
    own = _made_by(node for node in graph.node if node.op_type == "ConstantOfShape")
    inner = (_filled(body) for node in graph.node for body in bodies(node))
    return own.union(*inner)


def _named_bodies(graph: onnx.GraphProto) -> Iterator[tuple[tuple[str, str], onnx.GraphProto]]:
    """All bodies below a graph, by their node's name and their attribute's."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield (node.name, attribute.name), attribute.g
                yield from _named_bodies(attribute.g)


def _captured(proto: onnx.GraphProto) -> Names:
    """What one body reads of the graphs around it."""
    attribute = onnx.AttributeProto(name="body", type=onnx.AttributeProto.GRAPH)
    attribute.g.CopyFrom(proto)
    return captured(onnx.NodeProto(attribute=[attribute]))


def _placed(node: plain.Node) -> tuple[tuple[int | None, ...], frozenset[int]]:
    """Where a body's outputs are written to, and which are kept until the node is done.

    If hands its own outputs to its body; Scan does so with what it stacks, and has buffers of
    its own for the states; Loop keeps what it stacks until its end, and copies what it carries
    then.
    Source: onnxruntime/core/providers/cpu/controlflow/{if,loop,scan_utils}.cc.
    """
    outputs = len(node.outputs)
    if node.op == "If":
        return tuple(range(outputs)), frozenset()
    if node.op == "Loop":
        carried = len(node.inputs) - 2
        return (), frozenset(range(1 + carried, 1 + outputs))
    written = range(_carried(node), outputs)
    return (*(IN_SCRATCH for _ in range(_carried(node))), *written), frozenset()


def _carried(node: plain.Node) -> int:
    """How many values Loop or Scan hands from one run of its body to the next."""
    if node.op == "Loop":
        return len(node.inputs) - 2
    sequence_lengths = 1 if node.version < 9 else 0
    return len(node.inputs) - int(node.attributes["num_scan_inputs"]) - sequence_lengths


def _first_inputs(node: plain.Node, results: Mapping[str, Result]) -> list[Result]:
    """What the body's inputs are in its first run: the counter and condition, states, slices."""
    given = [results.get(name, NOTHING) for name in node.inputs]
    if node.op == "Loop":
        scalars = [Result((), ElementType.INT64), Result((), ElementType.BOOL)]
        return [*scalars, *given[2:]]
    if node.op != "Scan":
        return []
    given = given[1:] if node.version < 9 else given
    carried = _carried(node)
    axes = node.attributes.get("scan_input_axes", (0,) * (len(given) - carried))
    slices = zip(given[carried:], axes, strict=False)
    return [*given[:carried], *(_slice(result, axis) for result, axis in slices)]


def _slice(result: Result, axis: int) -> Result:
    if result.shape is None:
        return NOTHING
    at = axis % len(result.shape)
    return replace(result, shape=result.shape[:at] + result.shape[at + 1 :])


def _next_inputs(
    node: plain.Node, graph: plain.Graph, call: GraphCall, given: list[Result]
) -> list[Result]:
    """The same for the next run: the states are what the body gave."""
    if node.op not in ("Loop", "Scan"):
        return given
    first = 1 if node.op == "Loop" else 0
    states = [v.name for v in graph.outputs[first : first + _carried(node)]]
    start = 2 if node.op == "Loop" else 0
    names = [v.name for v in graph.inputs]
    known = dict(zip(names, given, strict=False))
    made = [call.results.get(name, known.get(name, NOTHING)) for name in states]
    return [*given[:start], *made, *given[start + len(made) :]]


def _of_control(node: plain.Node, results: Mapping[str, Result], runs: int) -> Bytes:
    """What Loop and Scan allocate for themselves: counter and condition, two of each state.

    Source: ``LoopImpl::CreateInitialFeeds`` in core/providers/cpu/controlflow/loop.cc,
    ``LoopStateVariable`` in scan_utils.cc.
    """
    if node.op == "Loop":
        return (8, 1)
    if node.op != "Scan":
        return ()
    states = _first_inputs(node, results)[: _carried(node)]
    return tuple(s.nbytes for s in states for _ in range(min(2, runs - 1)))


def _node(node: onnx.NodeProto) -> Node:
    label = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
    # ONNX Runtime numbers these otherwise in each process.
    is_numbered = node.op_type == "ReorderOutput"
    name = f"{node.op_type}/{node.output[0]}" if is_numbered else node.name
    return Node(
        name,
        label,
        tuple(node.input),
        tuple(node.output),
        implicit=captured(node),
        aliases=aliases(node.domain, node.op_type),
        in_place=in_place(node.domain, node.op_type),
        module=name or node.op_type,
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
