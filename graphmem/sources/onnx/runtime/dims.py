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

import onnx
from onnx import TensorProto, TypeProto, shape_inference

from graphmem.sources.onnx.runtime.optimize import bodies

Types = dict[str, TypeProto]

_MICROSOFT = "com.microsoft"
_BLOCKED = "com.microsoft.nchwc"

_SAME = (
    *("BiasGelu", "FastGelu", "Gelu", "QuickGelu", "BiasSplitGelu", "BiasAdd", "ScaledTanh"),
    *("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "RotaryEmbedding"),
    *("ParametricSoftplus", "Inverse", "NGramRepeatBlock", "QLinearSigmoid", "QLinearLeakyRelu"),
)
_STAND_INS: dict[tuple[str, str], tuple[str, int]] = {
    **{(_MICROSOFT, op): ("Relu", 1) for op in _SAME},
    (_MICROSOFT, "FusedConv"): ("Conv", 3),
    (_MICROSOFT, "FusedGemm"): ("Gemm", 3),
    (_BLOCKED, "Conv"): ("Conv", 3),
    (_BLOCKED, "MaxPool"): ("MaxPool", 1),
    (_BLOCKED, "AveragePool"): ("AveragePool", 1),
    (_BLOCKED, "GlobalAveragePool"): ("GlobalAveragePool", 1),
    (_BLOCKED, "GlobalMaxPool"): ("GlobalMaxPool", 1),
}
"""An operator -> the one of ONNX whose shapes it has, and how many of its inputs that takes."""

_STAND_IN_OPSET = 13
"""Of ONNX, with all attributes that the stand-ins take from ONNX Runtime's operators."""

_NOT_INFERRED = (
    *(onnx.defs.SchemaError, onnx.checker.ValidationError, shape_inference.InferenceError),
    *(KeyError, RuntimeError, ValueError),
)

_FUSED = frozenset({"activation", "activation_params", "activation_alpha", "activation_beta"})
_FUSED_GEMM = frozenset({"activation_gamma", "activation_beta"})


class Dims:
    """The types of a model's values, as far as they are known before it runs.

    Args:
        original: the model before it was optimized: its file states types that are lost then.
    """

    def __init__(self, model: onnx.ModelProto, original: onnx.ModelProto) -> None:
        self._stated = dict(_stated(original.graph))
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
                if found is not None and name not in data:
                    types[name] = found
        return types

    def _constant(self, node: onnx.NodeProto, types: Types, data: dict[str, TensorProto]) -> None:
        for attribute in node.attribute:
            if attribute.name == "value":
                data[node.output[0]] = attribute.t
                types[node.output[0]] = _type_of(attribute.t)

    def _inferred(
        self, node: onnx.NodeProto, types: Types, data: Mapping[str, TensorProto]
    ) -> Types:
        if (node.domain, node.op_type) in _REORDERS:
            return _reordered(node, types)
        if (node.domain, node.op_type) == (_MICROSOFT, "FusedMatMul"):
            return _of_product(node, types)
        if node.op_type == "If" and not node.domain:
            branches = [self.graph(body, types) for body in bodies(node)]
            ends = [
                [t.get(v.name) for v in b.output]
                for t, b in zip(branches, bodies(node), strict=True)
            ]
            return _of_either(node, ends)
        stand_in = _stand_in(node)
        if stand_in is None or bodies(node):
            return {}
        opsets, version = self._opsets, self._versions.get(stand_in.domain, 1)
        if stand_in is not node:
            opsets, version = [onnx.helper.make_opsetid("", _STAND_IN_OPSET)], _STAND_IN_OPSET
        try:
            schema = onnx.defs.get_schema(stand_in.op_type, version, stand_in.domain)
            return dict(
                shape_inference.infer_node_outputs(
                    schema,
                    stand_in,
                    {n: types[n] for n in stand_in.input if n in types},
                    {n: data[n] for n in stand_in.input if n in data},
                    opset_imports=opsets,
                    ir_version=self._ir_version,
                )
            )
        except _NOT_INFERRED:
            return {}


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


def _stand_in(node: onnx.NodeProto) -> onnx.NodeProto | None:
    """The node that has its shapes; None where there is none."""
    if node.domain in ("", "ai.onnx", "ai.onnx.ml"):
        return node
    found = _STAND_INS.get((node.domain, node.op_type))
    if found is None:
        return None
    op, inputs = found
    made = onnx.NodeProto(op_type=op, input=list(node.input)[:inputs], output=node.output[:1])
    left_out = _FUSED | (_FUSED_GEMM if op == "Gemm" else frozenset())
    if op != "Relu":
        made.attribute.extend(a for a in node.attribute if a.name not in left_out)
    while made.input and not made.input[-1]:
        made.input.pop()
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


def _of_product(node: onnx.NodeProto, types: Types) -> Types:
    """Of MatMul, once each operand [first, ..., row, column] is turned as its attributes say.

    Source: ``FusedMatMulShapeInference`` in onnxruntime/core/graph/contrib_ops/contrib_defs.cc.
    """
    turned = {}
    for side, name in zip("AB", node.input, strict=True):
        given = types.get(name)
        if given is None or not given.tensor_type.HasField("shape"):
            return {}
        turned[side] = _turned(given, _flag(node, f"trans{side}"), _flag(node, f"transBatch{side}"))
    product = onnx.helper.make_node("MatMul", list(turned), node.output)
    schema = onnx.defs.get_schema("MatMul", _STAND_IN_OPSET, "")
    opsets = [onnx.helper.make_opsetid("", _STAND_IN_OPSET)]
    try:
        return dict(
            shape_inference.infer_node_outputs(schema, product, turned, opset_imports=opsets)
        )
    except _NOT_INFERRED:
        return {}


def _turned(given: TypeProto, is_turned: bool, has_first_as_row: bool) -> TypeProto:
    """The first dimension becomes the row, then row and column change places; vectors stay."""
    dims = list(_dims(given))
    if len(dims) < 2:
        return given
    if has_first_as_row:
        dims = [*dims[1:-1], dims[0], dims[-1]]
    if is_turned:
        dims = [*dims[:-2], dims[-1], dims[-2]]
    made = TypeProto()
    made.tensor_type.elem_type = given.tensor_type.elem_type
    made.tensor_type.shape.dim.extend(dims)
    return made


def _flag(node: onnx.NodeProto, name: str) -> bool:
    return any(a.i for a in node.attribute if a.name == name)


_REORDERS = {(_BLOCKED, "ReorderInput"), (_BLOCKED, "ReorderOutput")}


def _reordered(node: onnx.NodeProto, types: Types) -> Types:
    """To the blocked layout and back: only the number of channels changes.

    Source: onnxruntime/core/graph/contrib_ops/nchwc_schema_defs.cc.
    """
    given = types.get(node.input[0])
    if given is None or not given.tensor_type.HasField("shape"):
        return {}
    values = {a.name: a.i for a in node.attribute}
    last = bool(values.get("channels_last"))
    made = TypeProto()
    made.CopyFrom(given)
    dims = list(given.tensor_type.shape.dim)
    channels = onnx.TensorShapeProto.Dimension()
    if node.op_type == "ReorderOutput":
        channels.dim_value = values["channels"]
        spatial = dims[2:]
        dims = [dims[0], *spatial, channels] if last else [dims[0], channels, *spatial]
    else:
        at = len(dims) - 1 if last else 1
        spatial = dims[1:-1] if last else dims[2:]
        if dims[at].dim_value % _BLOCK == 0:
            channels.CopyFrom(dims[at])
        dims = [dims[0], channels, *spatial]
    del made.tensor_type.shape.dim[:]
    made.tensor_type.shape.dim.extend(dims)
    return {node.output[0]: made}


_BLOCK = 16
"""Channels of the largest block: a multiple of it is padded by none (``MlasNchwcGetBlockSize``)."""


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
