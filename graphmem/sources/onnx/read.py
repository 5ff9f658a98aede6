"""Reading an .onnx file into a ``Model``, by the onnx package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import external_data_helper, inliner, numpy_helper

from graphmem.errors import ModelLoadError, one_line
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import (
    Array,
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

_AI_ONNX = ("", "ai.onnx")


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
    if not Path(path).is_file():
        raise ModelLoadError(f"{path}: no such file")
    try:
        proto = onnx.load(path, load_external_data=False)
    except (DecodeError, ValueError, OSError, RuntimeError) as error:
        raise ModelLoadError(f"{path}: not an ONNX model: {one_line(error)}") from error
    if not proto.HasField("graph"):
        raise ModelLoadError(f"{path}: not an ONNX model: it has no graph")
    return proto


def as_model(proto: onnx.ModelProto, path: str) -> Model:
    """A protobuf as plain data; its local functions become the nodes that they consist of.

    Args:
        path: where it is from: names it in errors, and external data lies in its folder.
    """
    if proto.functions:
        proto = inliner.inline_local_functions(proto)
    opsets = {_domain(o.domain): o.version for o in proto.opset_import}
    reader = _Reader(path, opsets)
    return Model(path, reader.graph(proto.graph), opsets, proto.ir_version)


def _domain(name: str) -> str:
    return "" if name in _AI_ONNX else name


class _Reader:
    def __init__(self, path: str, opsets: Mapping[str, int]) -> None:
        self._path = path
        self._folder = Path(path).resolve().parent
        self._opsets = opsets
        self._named: set[str] = set()

    def graph(self, proto: onnx.GraphProto) -> Graph:
        weights = {w.name: w for w in map(self.weight, proto.initializer)}
        weights |= {w.name: w for w in map(self._sparse, proto.sparse_initializer)}
        nodes = []
        for node in map(self.node, proto.node):
            if node.op == "Constant" and not node.domain:
                weights[node.outputs[0]] = constant(node)
            else:
                nodes.append(node)
        return Graph(
            name=proto.name,
            nodes=tuple(nodes),
            inputs=tuple(v for v in map(self._value, proto.input) if v.name not in weights),
            outputs=tuple(map(self._value, proto.output)),
            weights=weights,
            types={v.name: v.type for v in map(self._value, proto.value_info) if v.type},
        )

    def node(self, proto: onnx.NodeProto) -> Node:
        domain = _domain(proto.domain)
        return Node(
            name=self._unique(proto.name or proto.op_type),
            op=proto.op_type,
            domain=domain,
            version=self._opsets.get(domain, 1),
            inputs=tuple(proto.input),
            outputs=tuple(proto.output),
            attributes={a.name: self._attribute(a) for a in proto.attribute},
        )

    def _unique(self, name: str) -> str:
        """The node's own name, or one with a number if others have it."""
        found, count = name, 1
        while found in self._named:
            count += 1
            found = f"{name}_{count}"
        self._named.add(found)
        return found

    def _attribute(self, proto: onnx.AttributeProto) -> Any:
        kind = onnx.AttributeProto.AttributeType.Name(proto.type)
        readers: dict[str, Any] = {
            "INT": lambda: proto.i,
            "FLOAT": lambda: proto.f,
            "STRING": lambda: _text(proto.s),
            "INTS": lambda: tuple(proto.ints),
            "FLOATS": lambda: tuple(proto.floats),
            "STRINGS": lambda: tuple(map(_text, proto.strings)),
            "TENSOR": lambda: self.weight(proto.t),
            "TENSORS": lambda: tuple(map(self.weight, proto.tensors)),
            "GRAPH": lambda: self.graph(proto.g),
            "GRAPHS": lambda: tuple(map(self.graph, proto.graphs)),
            "TYPE_PROTO": lambda: value_type(proto.tp),
            "TYPE_PROTOS": lambda: tuple(map(value_type, proto.type_protos)),
            "SPARSE_TENSOR": lambda: self._sparse(proto.sparse_tensor),
        }
        if kind not in readers:
            raise ModelLoadError(f"{self._path}: attribute {proto.name} is of no type: {kind}")
        return readers[kind]()

    def weight(self, proto: onnx.TensorProto) -> Weight:
        element = ElementType(proto.data_type)
        return Weight(proto.name, element, tuple(proto.dims), lambda: self._values(proto))

    def _sparse(self, proto: onnx.SparseTensorProto) -> Weight:
        shape = tuple(proto.dims)

        def dense() -> Array:
            values = numpy_helper.to_array(proto.values)
            made = np.zeros(shape, values.dtype)
            indices = numpy_helper.to_array(proto.indices)
            where = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), shape)
            made.reshape(-1)[where] = values
            return made

        return Weight(proto.values.name, ElementType(proto.values.data_type), shape, dense)

    def _values(self, proto: onnx.TensorProto) -> Array | None:
        if not external_data_helper.uses_external_data(proto):
            return numpy_helper.to_array(proto)
        return None

    def _value(self, proto: onnx.ValueInfoProto) -> Value:
        return Value(proto.name, value_type(proto.type) if proto.HasField("type") else None)


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
    name = node.outputs[0]
    for attribute, value in node.attributes.items():
        if attribute in ("value", "sparse_value"):
            assert isinstance(value, Weight)
            return replace(value, name=name)
        if attribute in _SCALARS:
            element, dtype = _SCALARS[attribute]
            return array_weight(name, element, np.array(value, dtype=dtype))
    raise ModelLoadError(f"node {node.name} (Constant): it has no value")


def value_type(proto: onnx.TypeProto) -> ValueType | None:
    """A type as plain data; None where it says nothing."""
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(proto, kind)
        dims = _dims(tensor.shape.dim) if tensor.HasField("shape") else None
        return TensorType(ElementType(tensor.elem_type), dims)
    if kind == "map_type":
        value = value_type(proto.map_type.value_type)
        key = ElementType(proto.map_type.key_type)
        return None if value is None else MapType(key, value)
    if kind in ("sequence_type", "optional_type"):
        inner = value_type(getattr(proto, kind).elem_type)
        made = SequenceType if kind == "sequence_type" else OptionalType
        return None if inner is None else made(inner)
    return None


def _dims(dims: Iterable[Any]) -> tuple[Dim, ...]:
    def one(dim: Any) -> Dim:
        if dim.HasField("dim_value"):
            return int(dim.dim_value) if dim.dim_value >= 0 else None
        return dim.dim_param or None

    return tuple(map(one, dims))


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value
