"""Of which kernels of ONNX Runtime's CPU provider it is known what they take for themselves.

Either a rule says it (``scratch``, ``packing``), or the kernel was seen to take nothing beside
its outputs: in graphs whose every profiled figure is predicted to the byte, or in the onnx
package's node tests (``tools/ort_kernels.py``, with ONNX Runtime 1.31.1). Both in fp32, fp64,
integers and truth values: kernels that compute in types of less than that may convert to fp32
in buffers of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import Graph, Node
from graphmem.sources.onnx.runtime.scratch import has_rule

_MICROSOFT = "com.microsoft"
_BLOCKED = "com.microsoft.nchwc"

_MOVING = (
    *("BitCast", "Cast", "Concat", "ConstantOfShape", "Expand", "EyeLike", "Flatten", "Gather"),
    *("GatherElements", "GatherND", "Identity", "If", "IsInf", "IsNaN", "Loop", "Pad", "Reshape"),
    *("Scan", "Scatter", "ScatterElements", "ScatterND", "Shape", "Size", "Slice", "Split"),
    *("Squeeze", "TensorScatter", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"),
)
"""They move elements, whatever their type is; ``Where`` has a rule for every type."""

_COMPUTING = (
    *("Abs", "Acos", "Acosh", "Add", "AffineGrid", "And", "ArgMax", "ArgMin", "Asin", "Asinh"),
    *("Atan", "Atanh", "AveragePool", "BatchNormalization", "BitwiseAnd", "BitwiseNot"),
    *("BitwiseOr", "BitwiseXor", "Ceil", "Clip", "Col2Im", "Cos", "Cosh", "CumProd", "Det"),
    *("DequantizeLinear", "Div", "Dropout", "DynamicQuantizeLinear", "Elu", "Equal", "Erf"),
    *("Exp", "Floor", "Gelu", "Gemm", "GlobalAveragePool", "GlobalMaxPool", "Greater"),
    *("GreaterOrEqual", "GridSample", "HardSigmoid", "InstanceNormalization"),
    *("LayerNormalization", "LeakyRelu", "Less", "LessOrEqual", "Log", "LpNormalization"),
    *("LpPool", "MatMul", "MatMulInteger", "MaxPool", "MaxUnpool", "Mul", "Neg"),
    *("NonMaxSuppression", "NonZero", "Not", "Or", "PRelu", "Pow", "QuantizeLinear"),
    *("RMSNormalization", "Reciprocal", "ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu", "RotaryEmbedding"),
    *("Round", "STFT", "Selu", "Shrink", "Sigmoid", "Sign", "SimplifiedLayerNormalization"),
    *("Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Tan", "Tanh", "ThresholdedRelu"),
    *("TopK", "Xor"),
)

_MEASURED: Mapping[str, frozenset[str]] = {
    "": frozenset((*_MOVING, *_COMPUTING)),
    "ai.onnx.ml": frozenset({"ArrayFeatureExtractor", "Binarizer", "TreeEnsemble"}),
    _MICROSOFT: frozenset(
        {
            *("EmbedLayerNormalization", "FusedGemm", "FusedMatMul", "Gelu"),
            *("MatMulIntegerToFloat", "QLinearAdd", "QLinearGlobalAveragePool"),
            *("QLinearLeakyRelu", "QLinearMul", "QLinearSigmoid", "QuickGelu"),
            *("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
        }
    ),
    _BLOCKED: frozenset(
        {"AveragePool", "Conv", "GlobalAveragePool", "MaxPool", "ReorderInput", "ReorderOutput"}
    ),
}

_NARROW = frozenset(
    element for element in ElementType if "FLOAT" in element.name and element.bits < 32
)
"""Element types that the CPU provider computes with in fp32."""


def _has(*names: str) -> Callable[[Node], bool]:
    return lambda node: any(node.attributes.get(name) for name in names)


_OTHERWISE: Mapping[tuple[str, str], Callable[[Node], bool]] = {
    ("", "BatchNormalization"): _has("training_mode"),
    ("", "Resize"): _has("antialias"),
    (_MICROSOFT, "Attention"): _has("do_rotary"),
    (_MICROSOFT, "GroupQueryAttention"): _has("softcap", "smooth_softmax", "qk_output"),
}
"""Operators that have other kernels with some of their attributes, and which these are."""


def not_measured(graph: Graph, elements: Mapping[str, ElementType]) -> list[str]:
    """The operators of a graph and its bodies of whose kernels nothing is known, sorted.

    Args:
        graph: the graph.
        elements: the element types of values, by name. One that has too few bits to compute
            with is named beside the operator.
    """
    return sorted(set(_unknown(graph, elements)))


def _unknown(graph: Graph, elements: Mapping[str, ElementType]) -> Iterator[str]:
    for node in graph.nodes:
        narrow = [elements[n] for n in (*node.outputs, *node.inputs) if elements.get(n) in _NARROW]
        if not _is_known(node):
            yield node.kind
        elif narrow and not (node.domain == "" and node.op in _MOVING):
            yield f"{node.kind} in {narrow[0].name.lower()}"
        for _, body in node.bodies():
            yield from _unknown(body, elements)


def _is_known(node: Node) -> bool:
    key = node.domain, node.op
    if key in _OTHERWISE and _OTHERWISE[key](node):
        return False
    return has_rule(node) or node.op in _MEASURED.get(node.domain, ())
