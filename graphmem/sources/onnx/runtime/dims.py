"""Which dimensions ONNX Runtime knows to be the same before it runs: shapes with names.

Each node's output shapes are inferred from those of its inputs, one node at a time, by the
onnx package's own functions, which are ONNX Runtime's, too. Operators of ONNX Runtime's own
domains stand for the ONNX operators whose shapes they have. A dimension of which nothing is
known has no name, and is equal to none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx
from onnx import TensorProto, TypeProto, shape_inference

from graphmem.sources.onnx.runtime.optimize import captured

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

_FUSED = frozenset({"activation", "activation_params", "activation_alpha", "activation_beta"})
_FUSED_GEMM = frozenset({"activation_gamma", "activation_beta"})


class Dims:
    """The types of a model's values, as far as they are known before it runs."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._opsets = list(model.opset_import)
        self._versions = {o.domain.replace("ai.onnx", "", 1): o.version for o in self._opsets}
        self._versions = {o.domain: o.version for o in self._opsets} | self._versions
        self._ir_version = model.ir_version

    def graph(
        self, graph: onnx.GraphProto, outer: Mapping[str, TypeProto] | None = None
    ) -> Types:
        """The types of a graph's own values, and of the outer ones that it may read."""
        types: Types = dict(outer or {})
        types |= {v.name: v.type for v in graph.input if v.type.WhichOneof("value")}
        data = {w.name: w for w in graph.initializer}
        types |= {w.name: _type_of(w) for w in graph.initializer}
        types |= {
            v.name: v.type
            for v in graph.value_info
            if v.name not in types and v.type.WhichOneof("value")
        }
        for node in graph.node:
            if node.op_type == "Constant" and not node.domain:
                self._constant(node, types, data)
            for name, found in self._inferred(node, types, data).items():
                types[name] = found
        return types

    def _constant(
        self, node: onnx.NodeProto, types: Types, data: dict[str, TensorProto]
    ) -> None:
        for attribute in node.attribute:
            if attribute.name == "value":
                data[node.output[0]] = attribute.t
                types[node.output[0]] = _type_of(attribute.t)

    def _inferred(
        self, node: onnx.NodeProto, types: Types, data: Mapping[str, TensorProto]
    ) -> Types:
        if (node.domain, node.op_type) in _REORDERS:
            return _reordered(node, types)
        stand_in = _stand_in(node)
        if stand_in is None or captured(node):
            return {}
        try:
            schema = onnx.defs.get_schema(
                stand_in.op_type, self._versions.get(stand_in.domain, 1), stand_in.domain
            )
            return dict(
                shape_inference.infer_node_outputs(
                    schema,
                    stand_in,
                    {n: types[n] for n in stand_in.input if n in types},
                    {n: data[n] for n in stand_in.input if n in data},
                    opset_imports=self._opsets,
                    ir_version=self._ir_version,
                )
            )
        except (onnx.defs.SchemaError, shape_inference.InferenceError, KeyError, RuntimeError):
            return {}


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
