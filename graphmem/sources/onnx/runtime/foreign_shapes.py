"""The shapes of ONNX Runtime's own operators, as its graph infers them before it runs.

Most have those of an operator of ONNX that stands in for them. Types are by the names of values;
what is not known is left out.

Sources: onnxruntime/core/graph/contrib_ops/{contrib,bert,quantization,nchwc_schema}_defs.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx
from onnx import NodeProto, TensorProto, TypeProto, shape_inference

Types = dict[str, TypeProto]
Dimension = onnx.TensorShapeProto.Dimension

_MICROSOFT = "com.microsoft"
_BLOCKED = "com.microsoft.nchwc"

NOT_INFERRED = (
    *(onnx.defs.SchemaError, onnx.checker.ValidationError, shape_inference.InferenceError),
    *(KeyError, RuntimeError, ValueError),
)
"""What onnx raises where it can't tell a shape."""

_OPSET = 13
"""Of ONNX, with all attributes that the stand-ins take from ONNX Runtime's operators."""

_NOT_OF_ONNX = frozenset(
    {
        *("activation", "activation_params", "activation_alpha", "activation_beta"),
        *("activation_gamma", "channels_last", "opset"),
    }
)


def foreign_shapes(node: NodeProto, types: Types) -> Mapping[str, TypeProto]:
    """The types of the outputs of a node of ONNX Runtime's own domains.

    Args:
        node: the node.
        types: those of its inputs, by name.
    """
    rule = _RULES.get((node.domain, node.op_type))
    return {} if rule is None else rule(node, types)


Rule = Callable[[NodeProto, Types], Mapping[str, TypeProto]]


def _inferred(
    op: str,
    node: NodeProto,
    inputs: Sequence[str],
    types: Types,
    left_out: frozenset[str] = _NOT_OF_ONNX,
) -> Types:
    """What onnx says of the first output of an operator with a node's attributes.

    All inputs are taken to be in fp32, which every operator has; the output has the type of
    the first of them.
    """
    stand_in = NodeProto(op_type=op, input=inputs, output=node.output[:1])
    stand_in.attribute.extend(a for a in node.attribute if a.name not in left_out)
    while stand_in.input and not stand_in.input[-1]:
        stand_in.input.pop()
    known = {n: types[n] for n in stand_in.input if n in types}
    try:
        found = shape_inference.infer_node_outputs(
            onnx.defs.get_schema(op, _OPSET, ""),
            stand_in,
            _of_element(known, TensorProto.FLOAT),
            opset_imports=[onnx.helper.make_opsetid("", _OPSET)],
        )
    except NOT_INFERRED:
        return {}
    return _of_element(found, types[inputs[0]].tensor_type.elem_type)


def _like(
    op: str, *positions: int, element: int | None = None, is_always_last: bool = False
) -> Rule:
    """The shapes of an operator of ONNX, with these of the node's inputs.

    Args:
        op: the operator.
        positions: of the inputs.
        element: the type of the result, where it is another than that of the first of them.
        is_always_last: its channels come last without an attribute that says so.
    """

    def rule(node: NodeProto, types: Types) -> Types:
        inputs = [node.input[p] for p in positions if p < len(node.input)]
        is_last = is_always_last or bool(_number(node, "channels_last"))
        known = _with_channels(types, inputs[0], last=False) if is_last else types
        found = _inferred(op, node, inputs, known)
        made = _with_channels(found, node.output[0], last=True) if is_last else found
        return _of_element(made, element) if element else made

    return rule


def _of_element(types: Mapping[str, TypeProto], element: int) -> Types:
    made = {name: TypeProto() for name in types}
    for name, type_ in types.items():
        made[name].CopyFrom(type_)
        made[name].tensor_type.elem_type = element
    return made


def _with_channels(types: Types, name: str, *, last: bool) -> Types:
    """The types with the channels of one value moved to the end, or from there to the second."""
    if name not in types or len(types[name].tensor_type.shape.dim) < 3:
        return types
    dims = list(types[name].tensor_type.shape.dim)
    dims = [dims[0], *dims[2:], dims[1]] if last else [dims[0], dims[-1], *dims[1:-1]]
    return {**types, name: _tensor(types[name], dims)}


def _tensor(like: TypeProto, dims: Sequence[Dimension]) -> TypeProto:
    made = TypeProto()
    made.tensor_type.elem_type = like.tensor_type.elem_type
    made.tensor_type.shape.dim.extend(dims)
    return made


def _dims(types: Types, node: NodeProto, position: int) -> list[Dimension] | None:
    """The dimensions of an input; None where they are not known."""
    name = node.input[position] if position < len(node.input) else ""
    if name not in types or not types[name].tensor_type.HasField("shape"):
        return None
    return list(types[name].tensor_type.shape.dim)


def _number(node: NodeProto, name: str, default: int = 0) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name), default)


def _size(value: int) -> Dimension:
    return Dimension(dim_value=value)


def _same(node: NodeProto, types: Types) -> Types:
    """The shape of the first input; a fourth output is what was normalized."""
    given = types.get(node.input[0])
    if given is None:
        return {}
    return {node.output[at]: given for at in (0, 3) if at < len(node.output) and node.output[at]}


def _quantized_gemm(node: NodeProto, types: Types) -> Types:
    """A Gemm of the first and fourth inputs, in fp32 without an output zero point."""
    element = types.get(node.input[8]) if len(node.input) > 8 else None
    made = _inferred("Gemm", node, [node.input[0], node.input[3]], types)
    return _of_element(made, element.tensor_type.elem_type if element else TensorProto.FLOAT)


def _joined(node: NodeProto, types: Types) -> Types:
    """A Concat of what comes with a scale and a zero point each, behind those of the output."""
    return _inferred("Concat", node, list(node.input)[2::3], types)


def _product(node: NodeProto, types: Types) -> Types:
    """Of MatMul, once each operand [first, ..., row, column] is turned as its attributes say.

    Source: ``FusedMatMulShapeInference`` in onnxruntime/core/graph/contrib_ops/contrib_defs.cc.
    """
    turned = dict(types)
    for side, name in zip("AB", node.input, strict=False):
        given = types.get(name)
        if given is None or not given.tensor_type.HasField("shape"):
            return {}
        turns = bool(_number(node, f"trans{side}")), bool(_number(node, f"transBatch{side}"))
        turned[side] = _turned(given, *turns)
    every = frozenset(a.name for a in node.attribute)
    return _inferred("MatMul", node, ["A", "B"], turned, every)


def _turned(given: TypeProto, is_turned: bool, has_first_as_row: bool) -> TypeProto:
    """The first dimension becomes the row, then row and column change places; vectors stay."""
    dims = list(given.tensor_type.shape.dim)
    if len(dims) < 2:
        return given
    if has_first_as_row:
        dims = [*dims[1:-1], dims[0], dims[-1]]
    if is_turned:
        dims = [*dims[:-2], dims[-1], dims[-2]]
    return _tensor(given, dims)


def _of_bits(node: NodeProto, types: Types) -> Types:
    """[..., N]: the last dimension is an attribute of the weight that is packed in blocks."""
    given = _dims(types, node, 0)
    if not given:
        return {}
    dims = [*given[:-1], _size(_number(node, "N"))]
    return {node.output[0]: _tensor(types[node.input[0]], dims)}


def _attention(node: NodeProto, types: Types) -> Types:
    """[batch, sequence, v_hidden]: the bias has the hidden sizes of query, key and value.

    Source: ``AttentionTypeAndShapeInference`` in bert_defs.cc.
    """
    given, bias = _dims(types, node, 0), _dims(types, node, 2)
    if given is None or len(given) != 3 or not bias or not bias[0].HasField("dim_value"):
        return {}
    sizes = next((list(a.ints) for a in node.attribute if a.name == "qkv_hidden_sizes"), [])
    hidden = sizes[2] if sizes else bias[0].dim_value // 3
    return {node.output[0]: _tensor(types[node.input[2]], [*given[:2], _size(hidden)])}


def _heads(node: NodeProto, types: Types) -> Types:
    """Of separate or packed heads: [batch, sequence, v_hidden].

    Source: ``MultiHeadAttentionTypeAndShapeInference`` in bert_defs.cc.
    """
    query, key, value = (_dims(types, node, position) for position in range(3))
    if query is None:
        return {}
    hidden = None
    if len(query) == 5:  # [batch, sequence, heads, 3, head]
        hidden = _size(query[2].dim_value * query[4].dim_value)
    elif len(query) == 3 and value is not None:
        hidden = value[2] if len(value) == 3 else _size(value[1].dim_value * value[3].dim_value)
    elif len(query) == 3 and key is not None and len(key) == 5:
        hidden = query[2]
    if hidden is None:
        return {}
    return {node.output[0]: _tensor(types[node.input[0]], [*query[:2], hidden])}


def _grouped(node: NodeProto, types: Types) -> Types:
    """That of the query, without the keys and values that may be packed into it.

    Source: ``BaseGroupQueryAttentionTypeAndShapeInference`` in bert_defs.cc.
    """
    query = _dims(types, node, 0)
    if query is None or len(query) != 3:
        return {}
    if _dims(types, node, 2) is None:
        heads, shared = _number(node, "num_heads"), _number(node, "kv_num_heads")
        head = query[2].dim_value // max(heads + 2 * shared, 1)
        query = [*query[:2], _size(head * heads)]
    return {node.output[0]: _tensor(types[node.input[0]], query)}


def _embedded(node: NodeProto, types: Types) -> Types:
    """[batch, sequence, hidden] in the type of the word embedding, and a mask index [batch].

    Source: ``EmbedLayerNormalizationShapeInference`` in shape_inference_functions.cc.
    """
    ids, words = _dims(types, node, 0), _dims(types, node, 2)
    if ids is None or len(ids) != 2 or words is None or len(words) != 2:
        return {}
    made = _tensor(types[node.input[2]], [*ids, words[1]])
    found = {node.output[at]: made for at in (0, 2) if at < len(node.output)}
    if len(node.output) > 1:
        found[node.output[1]] = _tensor(types[node.input[0]], ids[:1])
    return {name: type_ for name, type_ in found.items() if name}


def _scaled(node: NodeProto, types: Types) -> Types:
    """Each dimension times its scale.

    Source: ``NchwcUpsample`` in nchwc_schema_defs.cc.
    """
    given = _dims(types, node, 0)
    scales = next((list(a.ints) for a in node.attribute if a.name == "scales"), [])
    if given is None or len(given) != len(scales):
        return {}
    dims = [
        _size(d.dim_value * s) if d.HasField("dim_value") else d if s == 1 else Dimension()
        for d, s in zip(given, scales, strict=True)
    ]
    return {node.output[0]: _tensor(types[node.input[0]], dims)}


def _reordered(node: NodeProto, types: Types) -> Types:
    """To the blocked layout and back: only the number of channels changes.

    Source: onnxruntime/core/graph/contrib_ops/nchwc_schema_defs.cc.
    """
    dims = _dims(types, node, 0)
    if dims is None:
        return {}
    is_last = bool(_number(node, "channels_last"))
    if node.op_type == "ReorderOutput":
        channels = _size(_number(node, "channels"))
        spatial = dims[2:]
        dims = [dims[0], *spatial, channels] if is_last else [dims[0], channels, *spatial]
    else:
        at = len(dims) - 1 if is_last else 1
        spatial = dims[1:-1] if is_last else dims[2:]
        channels = dims[at] if dims[at].dim_value % _BLOCK == 0 else Dimension()
        dims = [dims[0], channels, *spatial]
    return {node.output[0]: _tensor(types[node.input[0]], dims)}


_BLOCK = 16
"""Channels of the largest block: a multiple of it is padded by none (``MlasNchwcGetBlockSize``)."""

_OF_THE_FIRST = (
    *("BiasGelu", "FastGelu", "Gelu", "QuickGelu", "BiasSplitGelu", "BiasAdd", "ScaledTanh"),
    *("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "RotaryEmbedding"),
    *("ParametricSoftplus", "Inverse", "NGramRepeatBlock", "QLinearSigmoid", "QLinearLeakyRelu"),
    *("QLinearSoftmax", "BiasSoftmax"),
)
_RULES: dict[tuple[str, str], Rule] = {
    **{(_MICROSOFT, op): _same for op in _OF_THE_FIRST},
    (_MICROSOFT, "FusedConv"): _like("Conv", 0, 1, 2),
    (_MICROSOFT, "FusedGemm"): _like("Gemm", 0, 1, 2),
    (_MICROSOFT, "FusedMatMul"): _product,
    (_MICROSOFT, "QLinearConv"): _like("Conv", 0, 3),
    (_MICROSOFT, "QLinearAdd"): _like("Add", 0, 3),
    (_MICROSOFT, "QLinearMul"): _like("Mul", 0, 3),
    (_MICROSOFT, "QLinearConcat"): _joined,
    (_MICROSOFT, "QLinearWhere"): _like("Max", 1, 4, 0),
    (_MICROSOFT, "QLinearAveragePool"): _like("AveragePool", 0),
    (_MICROSOFT, "QLinearGlobalAveragePool"): _like("GlobalAveragePool", 0),
    (_MICROSOFT, "NhwcMaxPool"): _like("MaxPool", 0, is_always_last=True),
    (_MICROSOFT, "QGemm"): _quantized_gemm,
    (_MICROSOFT, "MatMulIntegerToFloat"): _like("MatMul", 0, 1, element=TensorProto.FLOAT),
    (_MICROSOFT, "DynamicQuantizeMatMul"): _like("MatMul", 0, 1),
    (_MICROSOFT, "MatMulNBits"): _of_bits,
    (_MICROSOFT, "Attention"): _attention,
    (_MICROSOFT, "QAttention"): _attention,
    (_MICROSOFT, "MultiHeadAttention"): _heads,
    (_MICROSOFT, "GroupQueryAttention"): _grouped,
    (_MICROSOFT, "EmbedLayerNormalization"): _embedded,
    (_BLOCKED, "Conv"): _like("Conv", 0, 1, 2),
    (_BLOCKED, "MaxPool"): _like("MaxPool", 0),
    (_BLOCKED, "AveragePool"): _like("AveragePool", 0),
    (_BLOCKED, "GlobalAveragePool"): _like("GlobalAveragePool", 0),
    (_BLOCKED, "GlobalMaxPool"): _like("GlobalMaxPool", 0),
    (_BLOCKED, "Upsample"): _scaled,
    (_BLOCKED, "ReorderInput"): _reordered,
    (_BLOCKED, "ReorderOutput"): _reordered,
}
