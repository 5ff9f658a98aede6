"""Models for the CUDA provider, with what ONNX Runtime 1.31.1 itself takes for them.

Measured with its own CUDA provider on a stand-in for CUDA's runtime (``tools/ort_cuda``), which
runs no kernels: the arena, its plan and its copies are ONNX Runtime's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

ROWS, WIDTH = 1000, 256


def perceptron() -> ModelProto:
    """Three products of [N, 256] by 256 KiB of weights each; two outputs."""
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"], name="m0"),
        helper.make_node("Relu", ["a"], ["b"], name="r0"),
        helper.make_node("MatMul", ["b", "w1"], ["c"], name="m1"),
        helper.make_node("Sigmoid", ["c"], ["d"], name="s"),
        helper.make_node("Add", ["b", "d"], ["e"], name="add"),
        helper.make_node("Reshape", ["e", "shape"], ["f"], name="re"),
        helper.make_node("MatMul", ["e", "w2"], ["y"], name="m2"),
    ]
    weights = [
        helper.make_tensor(f"w{n}", TensorProto.FLOAT, [WIDTH, WIDTH], [0.0] * WIDTH * WIDTH)
        for n in range(3)
    ]
    weights.append(helper.make_tensor("shape", TensorProto.INT64, [3], [-1, 16, 16]))
    return _model(nodes, [("x", ["N", WIDTH])], [("y", ["N", WIDTH]), ("f", None)], weights)


def two_devices() -> ModelProto:
    """Acos has no CUDA kernel; Div and Mul work on a shape; Exp is read on both sides."""
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], name="exp"),
        helper.make_node("Shape", ["a"], ["s"], name="shape"),
        helper.make_node("Div", ["s", "halves"], ["t"], name="div"),
        helper.make_node("Mul", ["t", "twos"], ["u"], name="mul"),
        helper.make_node("Acos", ["a"], ["b"], name="acos"),
        helper.make_node("Add", ["a", "b"], ["c"], name="add"),
        helper.make_node("Reshape", ["c", "u"], ["d"], name="reshape"),
        helper.make_node("Tanh", ["d"], ["y"], name="tanh"),
    ]
    weights = [
        helper.make_tensor("halves", TensorProto.INT64, [2], [2, 1]),
        helper.make_tensor("twos", TensorProto.INT64, [2], [1, 2]),
    ]
    return _model(nodes, [("x", ["N", 64])], [("y", None)], weights)


def half_precision() -> ModelProto:
    """Two products of [N, 256] by the same weight, in float16."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="m0"),
        helper.make_node("Relu", ["a"], ["b"], name="r"),
        helper.make_node("MatMul", ["b", "w"], ["y"], name="m1"),
    ]
    half = TensorProto.FLOAT16
    weight = helper.make_tensor("w", half, [WIDTH, WIDTH], [0.0] * WIDTH * WIDTH)
    made = _model(nodes, [("x", ["N", WIDTH])], [("y", None)], [weight])
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.elem_type = half
    return made


def convolution(**attributes: Any) -> ModelProto:
    """One of [N, 64, 56, 56] by 64 filters of 3 x 3."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [64, 64, 3, 3], [0.0] * 64 * 64 * 9)
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="conv", **attributes)
    return _model([node], [("x", ["N", 64, 56, 56])], [("y", None)], [weight])


def _model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[tuple[str, list[Any] | None]],
    outputs: Sequence[tuple[str, list[Any] | None]],
    weights: Sequence[TensorProto],
) -> ModelProto:
    def values(named: Sequence[tuple[str, list[Any] | None]]) -> list[Any]:
        return [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in named]

    graph: GraphProto = helper.make_graph(
        list(nodes), "graph", values(inputs), values(outputs), list(weights)
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
