"""Which dimensions ONNX Runtime knows to be the same before it runs: shapes with names.

Each node's output shapes are inferred from those of its inputs, one node at a time, by the
onnx package's own functions, which are ONNX Runtime's, too. Operators of ONNX Runtime's own
domains stand for the ONNX operators whose shapes they have. What the file states of a value
before it is optimized is kept where inference knows less. A dimension of which nothing is known
has no name, and is equal to none.

Source: ``Graph::InferAndVerifyTypeMatch`` in onnxruntime/core/graph/graph.cc.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

import onnx
from onnx import TensorProto, TypeProto, shape_inference

from graphmem.sources.onnx.runtime.foreign_shapes import NOT_INFERRED, Types, foreign_shapes
from graphmem.sources.onnx.runtime.optimize import bodies

_OF_ONNX = ("", "ai.onnx", "ai.onnx.ml")


class Dims:
    """The types of a model's values, as far as they are known before it runs.

    Args:
        original: the model before it was optimized: its file states types that are lost then.
    """

    def __init__(self, model: onnx.ModelProto, original: onnx.ModelProto) -> None:
        self._stated = dict(_stated(original.graph))
        self._original = original
        self._quantized = frozenset(() if original is model else _quantized(original.graph))
        self._opsets = list(model.opset_import)
        self._versions = {o.domain.replace("ai.onnx", "", 1): o.version for o in self._opsets}
        self._versions = {o.domain: o.version for o in self._opsets} | self._versions
        self._ir_version = model.ir_version

    def graph(self, graph: onnx.GraphProto, outer: Mapping[str, TypeProto] | None = None) -> Types:
        """The types of a graph's own values, and of the outer ones that it may read."""
        types: Types = dict(outer or {})
        types |= {v.name: v.type for v in graph.input if v.type.WhichOneof("value")}
        data = {w.name: w for w in graph.initializer}
        types |= {w.name: _type_of(w) for w in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and not node.domain:
                self._constant(node, types, data)
            inferred = self._inferred(node, types, data)
            for name in filter(None, node.output):
                found = _merged(inferred.get(name), self._stated.get(name))
                if name in self._quantized and named_dims(found) is None:
                    found = _merged(found, self._before(name))
                if found is not None and name not in data:
                    types[name] = found
        return types

    def _before(self, name: str) -> TypeProto | None:
        """What was inferred of a value in the graph as the file has it.

        What a QuantizeLinear gave there keeps its shape when another node gives it, as measured.
        Source: onnxruntime/core/optimizer/qdq_transformer/selectors_actions/qdq_actions.cc.
        """
        return self._of_original.get(name)

    @cached_property
    def _of_original(self) -> Types:
        original = self._original
        return Dims(original, original).graph(original.graph)

    def _constant(self, node: onnx.NodeProto, types: Types, data: dict[str, TensorProto]) -> None:
        for attribute in node.attribute:
            if attribute.name == "value":
                data[node.output[0]] = attribute.t
                types[node.output[0]] = _type_of(attribute.t)

    def _inferred(
        self, node: onnx.NodeProto, types: Types, data: Mapping[str, TensorProto]
    ) -> Types:
        if node.domain not in _OF_ONNX:
            return dict(foreign_shapes(node, types))
        if node.op_type == "If" and not node.domain:
            branches = [self.graph(body, types) for body in bodies(node)]
            ends = [
                [t.get(v.name) for v in b.output]
                for t, b in zip(branches, bodies(node), strict=True)
            ]
            return _of_either(node, ends)
        if bodies(node):
            return {}
        try:
            schema = onnx.defs.get_schema(
                node.op_type, self._versions.get(node.domain, 1), node.domain
            )
            return dict(
                shape_inference.infer_node_outputs(
                    schema,
                    node,
                    {n: types[n] for n in node.input if n in types},
                    {n: data[n] for n in node.input if n in data},
                    opset_imports=self._opsets,
                    ir_version=self._ir_version,
                )
            )
        except NOT_INFERRED:
            return {}


def _quantized(graph: onnx.GraphProto) -> Iterator[str]:
    """The values that are quantized in a graph."""
    for node in graph.node:
        if node.op_type == "QuantizeLinear":
            yield from node.output


def _stated(graph: onnx.GraphProto) -> Iterator[tuple[str, TypeProto]]:
    """The types that a file states, also of bodies."""
    for value in (*graph.value_info, *graph.output):
        if value.type.WhichOneof("value"):
            yield value.name, value.type
    for node in graph.node:
        for body in bodies(node):
            yield from _stated(body)


def _merged(inferred: TypeProto | None, stated: TypeProto | None) -> TypeProto | None:
    """Both together: sizes before names, stated names before inferred ones."""
    if inferred is None or stated is None:
        return inferred or stated
    one, other = inferred.tensor_type, stated.tensor_type
    if not other.HasField("shape") or one.elem_type != other.elem_type:
        return inferred
    if not one.HasField("shape") or len(one.shape.dim) != len(other.shape.dim):
        return stated if not one.HasField("shape") else inferred
    made = TypeProto()
    made.CopyFrom(inferred)
    for mine, theirs in zip(made.tensor_type.shape.dim, other.shape.dim, strict=True):
        is_better = theirs.HasField("dim_value") or theirs.dim_param
        if not mine.HasField("dim_value") and is_better:
            mine.CopyFrom(theirs)
    return made


def _of_either(node: onnx.NodeProto, ends: list[list[TypeProto | None]]) -> Types:
    """What If gives: the dimensions that are the same in both of its bodies."""
    found: Types = {}
    for name, types in zip(node.output, zip(*ends, strict=True), strict=True):
        first, second = types[0], types[-1]
        if first is None or second is None:
            continue
        made = TypeProto()
        made.CopyFrom(first)
        one, other = made.tensor_type, second.tensor_type
        if not other.HasField("shape") or len(one.shape.dim) != len(other.shape.dim):
            one.ClearField("shape")
        for mine, theirs in zip(one.shape.dim, other.shape.dim, strict=False):
            if mine != theirs:
                mine.Clear()
        found[name] = made
    return found


def _type_of(tensor: TensorProto) -> TypeProto:
    return onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)


def named_dims(type_: TypeProto | None) -> tuple[int | str, ...] | None:
    """The dimensions as numbers and names; None where one of them is neither."""
    if type_ is None or not type_.tensor_type.HasField("shape"):
        return None
    dims = [d.dim_value if d.HasField("dim_value") else d.dim_param for d in _dims(type_)]
    return None if any(d == "" for d in dims) else tuple(dims)


def _dims(type_: TypeProto) -> Iterable[onnx.TensorShapeProto.Dimension]:
    return type_.tensor_type.shape.dim
