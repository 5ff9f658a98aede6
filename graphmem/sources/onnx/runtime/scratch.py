"""What a kernel of ONNX Runtime's CPU provider allocates for itself while it runs.

A rule is a function of a node and the shapes of its inputs and outputs; it gives blocks in
bytes that are alive together, most of them taken after the outputs.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphmem.sources.onnx.model import Graph, Node
from graphmem.sources.onnx.runtime.calls import NONE, Rule, Scratch, Shapes
from graphmem.sources.onnx.runtime.scratch_attention import ATTENTION
from graphmem.sources.onnx.runtime.scratch_convolutions import CONVOLUTIONS
from graphmem.sources.onnx.runtime.scratch_elementwise import ELEMENTWISE
from graphmem.sources.onnx.runtime.scratch_quantized import QUANTIZED
from graphmem.sources.onnx.runtime.scratch_recurrent import RECURRENT

_RULES: dict[tuple[str, str], Rule] = {
    **ATTENTION,
    **CONVOLUTIONS,
    **ELEMENTWISE,
    **QUANTIZED,
    **RECURRENT,
}


def scratch(node: Node, shapes: Shapes) -> Scratch:
    """The blocks of one call."""
    rule = _RULES.get((node.domain, node.op))
    return NONE if rule is None else rule(node, shapes)


_MICROSOFT = "com.microsoft"

_MEASURED: Mapping[str, frozenset[str]] = {
    "": frozenset(
        {
            *("Abs", "Add", "AveragePool", "BatchNormalization", "Cast", "Clip", "Concat"),
            *("ConstantOfShape", "Div", "Equal", "Exp", "Expand", "Gather", "Gemm"),
            *("GlobalAveragePool", "GlobalMaxPool", "Identity", "If"),
            *("LayerNormalization", "Loop", "MatMul", "MaxPool", "Mul", "Neg", "Not", "Pad", "Pow"),
            *("Reciprocal", "ReduceMax", "ReduceMean", "ReduceSum", "Relu", "Reshape", "Scan"),
            *("Shape", "Sigmoid", "Size", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Tanh"),
            *("Transpose", "Unsqueeze", "Flatten"),
        }
    ),
    _MICROSOFT: frozenset({"FusedGemm", "FusedMatMul", "QuickGelu"}),
    "com.microsoft.nchwc": frozenset(
        {"AveragePool", "Conv", "GlobalAveragePool", "MaxPool", "ReorderInput", "ReorderOutput"}
    ),
}
"""Operators whose kernels were seen to take nothing beside their outputs, packed weights and
what the rules above say: in graphs whose every profiled figure is predicted to the byte."""


def not_measured(graph: Graph) -> list[str]:
    """The operators of a graph and its bodies of whose kernels nothing is known, sorted."""
    found: set[str] = set()
    for node in graph.nodes:
        known = (node.domain, node.op) in _RULES or node.op in _MEASURED.get(node.domain, ())
        if not known:
            found.add(node.kind)
        for _, body in node.bodies():
            found.update(not_measured(body))
    return sorted(found)
