"""Reading an .onnx file into a ``Model``, by the onnx package."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from graphmem.errors import ModelLoadError, one_line, shown
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.functions import (
    MOST_DEPTH,
    MOST_NODES,
    FunctionKey,
    Functions,
    Scope,
)
from graphmem.sources.onnx.model import (
    Dim,
    Graph,
    MapType,
    Model,
    Node,
    OptionalType,
    SequenceType,
    TensorType,
    Value,
    ValueType,
    Weight,
    array_weight,
)
from graphmem.sources.onnx.names import UniqueNames
from graphmem.sources.onnx.order import in_order
from graphmem.sources.onnx.tensors import TensorReader, element_type

_AI_ONNX = ("", "ai.onnx")
_MOST_BYTES = (1 << 31) - 1
"""Of one protobuf message; source: protobuf's documentation, "Total Size of the Message"."""

_FIRST_WITH_OPSETS = 3
"""The first IR version whose models must name opsets; source: onnx.proto, ``opset_import``."""

_MOST_NUMBERS = 1 << 24
"""Of a list in an attribute: as Python's numbers they take 0.5 GiB."""


def read_model(path: str) -> Model:
    """The model in a file; weights in other files are looked at when they are asked for.

    Raises:
        ModelLoadError: in one line, if it is no model or contradicts itself.
    """
    return as_model(load_proto(path), path)


def load_proto(path: str) -> onnx.ModelProto:
    """The protobuf in a file, without the weights in other files.

    Raises:
        ModelLoadError: there is no such file, or it holds no model.
    """
    data = _bytes(path)
    try:
        proto = onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise ModelLoadError(f"{path}: {_what_is_wrong(data, error)}") from error
    if not proto.HasField("graph"):
        raise ModelLoadError(f"{path}: not an ONNX model: it has no graph")
    return proto


def _bytes(path: str) -> bytes:
    file = Path(path)
    try:
        if file.is_dir():
            raise ModelLoadError(f"{path}: is a folder; name the .onnx file in it")
        if not file.is_file():
            kind = "no regular file" if file.exists() else "no such file"
            raise ModelLoadError(f"{path}: {kind}")
        size = file.stat().st_size
        if size > _MOST_BYTES:
            raise ModelLoadError(
                f"{path}: {size} B are more than the 2 GiB of a protobuf; "
                "its weights must lie in files of their own (external data)"
            )
        data = file.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null byte
        why = getattr(error, "strerror", None) or one_line(error)
        raise ModelLoadError(f"{shown(path)}: {why}") from error
    if not data:
        raise ModelLoadError(f"{path}: the file is empty")
    return data


def _what_is_wrong(data: bytes, error: DecodeError) -> str:
    """Why protobuf can't read it, as far as its own message or the first bytes tell."""
    if "MaxDepth" in str(error):
        return "graphs are nested deeper than the 32 that protobuf reads"
    if data.startswith(b"version https://git-lfs"):
        return "a pointer of Git LFS, not the model; fetch it with git lfs pull"
    if data[0] == 0x08:  # the key of ir_version, with which exporters begin
        return f"not a whole ONNX model: truncated or damaged ({len(data)} B)"
    return f"not an ONNX model: {one_line(error).rpartition(': ')[2]}"


def as_model(proto: onnx.ModelProto, path: str) -> Model:
    """A protobuf as plain data; its local functions become the nodes that they consist of.

    Args:
        path: where it is from: names it in errors, and external data lies in its folder.

    Raises:
        ModelLoadError: in one line, if it contradicts itself.
    """
    if not proto.opset_import and proto.ir_version >= _FIRST_WITH_OPSETS:
        raise ModelLoadError(f"{path}: it names no opset (opset_import): truncated or damaged")
    reader = _Reader(path, proto.functions)
    scope = Scope(_opsets(proto.opset_import))
    graph = reader.graph(proto.graph, scope)
    _check_defined(graph, path)
    return Model(path, graph, scope.opsets, proto.ir_version)


def _check_defined(graph: Graph, path: str) -> None:
    """Check that every value that is read is given by something."""
    outside = graph.captured()
    if not outside:
        return
    name = outside[0]
    for node in graph.nodes:
        if name in node.inputs or any(name in body.captured() for _, body in node.bodies()):
            raise ModelLoadError(
                f"{path}: node {node.label} reads {shown(name)}, "
                "which no node, input or initializer gives"
            )
    raise ModelLoadError(
        f"{path}: the graph's output {shown(name)} is given by no node, input or initializer"
    )


def _version(domain: str, opsets: Mapping[str, int]) -> int:
    """A domain's opset, 1 if it is not imported.

    ONNX Runtime's operators of ONNX with channels last have ONNX's own opset, which is all that
    it imports. Source: onnxruntime/core/graph/model.cc.
    """
    known = "" if domain == "com.ms.internal.nhwc" and domain not in opsets else domain
    return opsets.get(known, 1)


def _opsets(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    return {_domain(o.domain): o.version for o in imports}


def _domain(name: str | bytes) -> str:
    text = _name(name)
    return "" if text in _AI_ONNX else text


def _name(value: str | bytes) -> str:
    """A name; protobuf gives bytes where they are no text."""
    return value if isinstance(value, str) else value.decode("utf-8", "backslashreplace")


class _Reader:
    """Reads graphs; ``functions`` are the model's own."""

    def __init__(self, path: str, functions: Iterable[onnx.FunctionProto]) -> None:
        self._path = path
        self._tensors = TensorReader(path)
        self._functions = Functions(path)
        for function in functions:
            key = (_domain(function.domain), _name(function.name), _name(function.overload))
            self._functions.add(key, function)
        self._names = UniqueNames()
        self._depth = 0
        self._expanded = 0

    def graph(self, proto: onnx.GraphProto, scope: Scope) -> Graph:
        """A graph and those in it."""
        if self._depth >= MOST_DEPTH:
            raise ModelLoadError(f"{self._path}: graphs are nested {MOST_DEPTH} deep")
        self._depth += 1
        weights = self._initializers(proto, scope)
        types = dict(self._types(proto.value_info, scope))
        inputs = [self._value(v, scope) for v in proto.input]
        self._check_inputs(inputs)
        stored = dict(weights)
        nodes = []
        for node in self._nodes(proto.node, scope, types):
            weight = self._given_by(node, weights, stored)
            if weight is None:
                nodes.append(node)
            elif node.outputs and node.outputs[0]:
                self._add_weight(node, weight, weights)
        self._depth -= 1
        given = [*(v.name for v in inputs), *weights]
        return Graph(
            name=_name(proto.name),
            nodes=in_order(nodes, given, self._path),
            inputs=tuple(v for v in inputs if v.name not in weights),
            outputs=tuple(self._value(v, scope) for v in proto.output),
            weights=weights,
            types=types,
        )

    def _initializers(self, proto: onnx.GraphProto, scope: Scope) -> dict[str, Weight]:
        weights: dict[str, Weight] = {}
        for dense in proto.initializer:
            name = scope.name(_name(dense.name))
            weights[name] = self._tensors.dense(dense, name)
        for sparse in proto.sparse_initializer:
            name = scope.name(_name(sparse.values.name))
            weights[name] = self._tensors.sparse(sparse, name)
        return weights

    def _check_inputs(self, inputs: list[Value]) -> None:
        seen: set[str] = set()
        for value in inputs:
            if value.name in seen:
                raise ModelLoadError(f"{self._path}: two inputs are called {shown(value.name)}")
            seen.add(value.name)

    def _given_by(
        self, node: Node, weights: Mapping[str, Weight], stored: Mapping[str, Weight]
    ) -> Weight | None:
        """The weight that a node is, if it is one and computes nothing."""
        if node.domain:
            return None
        if node.op == "Constant":
            return replace(constant(node), is_literal=True)
        if node.op == "Identity" and node.inputs:
            # Another name: exporters write equal weights once, and share them so.
            return weights.get(node.inputs[0])
        return self._filled(node, stored)

    def _filled(self, node: Node, stored: Mapping[str, Weight]) -> Weight | None:
        """A weight that is stored as its sizes alone: files without weights are made so.

        The sizes must be an initializer: ``torch.zeros(2, 3)`` in a model has them in a
        Constant node, and is no weight.
        """
        wanted = node.op == "ConstantOfShape" and len(node.outputs) == 1
        sizes = stored.get(node.inputs[0]) if wanted and node.inputs else None
        return None if sizes is None else self._tensors.filled(node, sizes)

    def _add_weight(self, node: Node, weight: Weight, weights: dict[str, Weight]) -> None:
        name = node.outputs[0]
        if name in weights:
            raise ModelLoadError(
                f"{self._path}: node {node.label} gives {shown(name)}, which is given already"
            )
        weights[name] = weight

    def _nodes(
        self, protos: Iterable[onnx.NodeProto], scope: Scope, types: dict[str, ValueType]
    ) -> Iterator[Node]:
        """The nodes, those of functions in place of their calls."""
        for proto in protos:
            key = (_domain(proto.domain), _name(proto.op_type), _name(proto.overload))
            if self._functions.find(key) is None:
                yield self.node(proto, scope)
            else:
                yield from self._called(key, proto, scope, types)

    def _called(
        self, key: FunctionKey, call: onnx.NodeProto, scope: Scope, types: dict[str, ValueType]
    ) -> Iterator[Node]:
        function = self._functions.find(key)
        assert function is not None  # the caller has looked
        attributes = {
            _name(a.name): self._attribute(a, Scope({})) for a in function.attribute_proto
        }
        attributes |= self._attributes(call, scope)
        prefix = self._names.of(scope.name(_name(call.name)) or key[1])
        inner = self._functions.entered(
            key, call, scope, Scope(_opsets(function.opset_import), {}, prefix, attributes)
        )
        types.update(self._types(function.value_info, inner))
        for node in self._nodes(function.node, inner, types):
            self._count()
            yield node
        self._count()
        yield from self._passed_on(function, call, scope, inner)

    def _count(self) -> None:
        self._expanded += 1
        if self._expanded > MOST_NODES:
            raise ModelLoadError(f"{self._path}: its functions call for over {MOST_NODES} nodes")

    def _passed_on(
        self, function: onnx.FunctionProto, call: onnx.NodeProto, outer: Scope, inner: Scope
    ) -> Iterator[Node]:
        """Nodes for the inputs that a function gives back as they are."""
        inputs = set(function.input)
        for own, told in zip(function.output, call.output, strict=False):
            if own in inputs and told:
                name, source = self._names.of(f"{inner.prefix}/Identity"), inner.name(_name(own))
                yield Node(name, "Identity", "", 1, (source,), (outer.name(_name(told)),), {})

    def node(self, proto: onnx.NodeProto, scope: Scope) -> Node:
        """One operator call."""
        domain, op = _domain(proto.domain), _name(proto.op_type)
        return Node(
            name=self._names.of(scope.name(_name(proto.name)) or scope.name(op)),
            op=op,
            domain=domain,
            version=_version(domain, scope.opsets),
            inputs=tuple(scope.name(_name(name)) for name in proto.input),
            outputs=tuple(scope.name(_name(name)) for name in proto.output),
            attributes=self._attributes(proto, scope),
        )

    def _attributes(self, proto: onnx.NodeProto, scope: Scope) -> dict[str, Any]:
        """The attributes of a node; those that refer to the caller's are its values."""
        found: dict[str, Any] = {}
        for attribute in proto.attribute:
            name = _name(attribute.name)
            if not attribute.ref_attr_name:
                found[name] = self._attribute(attribute, scope)
            elif _name(attribute.ref_attr_name) in scope.attributes:
                found[name] = scope.attributes[_name(attribute.ref_attr_name)]
        return found

    def _attribute(self, proto: onnx.AttributeProto, scope: Scope) -> Any:
        name, kind = _name(proto.name), _kind(proto)
        readers: dict[str, Callable[[], Any]] = {
            "INT": lambda: proto.i,
            "FLOAT": lambda: proto.f,
            "STRING": lambda: _text(proto.s),
            "INTS": lambda: self._list(name, proto.ints),
            "FLOATS": lambda: self._list(name, proto.floats),
            "STRINGS": lambda: tuple(map(_text, self._list(name, proto.strings))),
            "TENSOR": lambda: self._tensors.dense(proto.t, name),
            "TENSORS": lambda: tuple(self._tensors.dense(t, name) for t in proto.tensors),
            "GRAPH": lambda: self.graph(proto.g, scope),
            "GRAPHS": lambda: tuple(self.graph(g, scope) for g in proto.graphs),
            "TYPE_PROTO": lambda: value_type(proto.tp, name),
            "TYPE_PROTOS": lambda: tuple(value_type(t, name) for t in proto.type_protos),
            "SPARSE_TENSOR": lambda: self._tensors.sparse(proto.sparse_tensor, name),
            "SPARSE_TENSORS": lambda: tuple(
                self._tensors.sparse(t, name) for t in proto.sparse_tensors
            ),
        }
        if kind not in readers:
            raise ModelLoadError(f"{self._path}: attribute {shown(name)} has no value")
        return readers[kind]()

    def _list(self, name: str, values: Any) -> tuple[Any, ...]:
        if len(values) > _MOST_NUMBERS:
            raise ModelLoadError(
                f"{self._path}: attribute {shown(name)} lists {len(values)} values; "
                f"{_MOST_NUMBERS} are read at most"
            )
        return tuple(values)

    def _value(self, proto: onnx.ValueInfoProto, scope: Scope) -> Value:
        name = scope.name(_name(proto.name))
        owner = f"{self._path}: {shown(name)}"
        return Value(name, value_type(proto.type, owner) if proto.HasField("type") else None)

    def _types(
        self, protos: Iterable[onnx.ValueInfoProto], scope: Scope
    ) -> Iterator[tuple[str, ValueType]]:
        for value in (self._value(proto, scope) for proto in protos):
            if value.type is not None:
                yield value.name, value.type


_FIELDS = {
    **{"f": "FLOAT", "i": "INT", "s": "STRING", "t": "TENSOR", "g": "GRAPH"},
    **{"floats": "FLOATS", "ints": "INTS", "strings": "STRINGS", "tensors": "TENSORS"},
    "graphs": "GRAPHS",
}


def _kind(proto: onnx.AttributeProto) -> str:
    """What an attribute is; files of IR version 1 do not say, but have one field set."""
    kinds = onnx.AttributeProto.AttributeType
    if proto.type == kinds.UNDEFINED:
        set_fields = [field.name for field, _ in proto.ListFields()]
        return next((kind for name, kind in _FIELDS.items() if name in set_fields), "UNDEFINED")
    # An unknown number reads as the number.
    return kinds.Name(proto.type) if proto.type in kinds.values() else "UNDEFINED"


_SCALARS: Mapping[str, tuple[ElementType, Any]] = {
    "value_int": (ElementType.INT64, np.int64),
    "value_ints": (ElementType.INT64, np.int64),
    "value_float": (ElementType.FLOAT, np.float32),
    "value_floats": (ElementType.FLOAT, np.float32),
    "value_string": (ElementType.STRING, object),
    "value_strings": (ElementType.STRING, object),
}


def constant(node: Node) -> Weight:
    """What a Constant node gives, by the name of its output.

    Raises:
        ModelLoadError: it has no value.
    """
    name = node.outputs[0] if node.outputs else ""
    for attribute, value in node.attributes.items():
        if attribute in ("value", "sparse_value"):
            assert isinstance(value, Weight)
            return replace(value, name=name)
        if attribute in _SCALARS:
            element, dtype = _SCALARS[attribute]
            return array_weight(name, element, np.array(value, dtype=dtype))
    raise ModelLoadError(f"node {node.label}: it has no value")


def value_type(proto: onnx.TypeProto, owner: str = "a type") -> ValueType | None:
    """A type as plain data; None where it says nothing.

    Args:
        owner: what has it, for messages.

    Raises:
        ModelLoadError: it names an element type that ONNX does not have.
    """
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(proto, kind)
        dims = tuple(map(_dim, tensor.shape.dim)) if tensor.HasField("shape") else None
        return TensorType(element_type(tensor.elem_type, owner), dims)
    if kind == "map_type":
        value = value_type(proto.map_type.value_type, owner)
        key = element_type(proto.map_type.key_type, owner)
        return None if value is None else MapType(key, value)
    if kind in ("sequence_type", "optional_type"):
        inner = value_type(getattr(proto, kind).elem_type, owner)
        made = SequenceType if kind == "sequence_type" else OptionalType
        return None if inner is None else made(inner)
    return None


def _dim(dim: Any) -> Dim:
    """A dimension; -1 and other negative sizes are how some exporters write a free one."""
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    return _name(dim.dim_param) or None


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value
