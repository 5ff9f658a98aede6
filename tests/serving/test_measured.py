"""Which kernels nothing is known of, by operator and element type."""

from __future__ import annotations

from onnx import TensorProto, helper

from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.read import as_model
from graphmem.sources.onnx.runtime.measured import not_measured


def _named(op: str, element: int, **attributes: object) -> list[str]:
    node = helper.make_node(op, ["x"], ["y"])
    node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
    values = [helper.make_tensor_value_info(name, element, [4]) for name in "xy"]
    graph = helper.make_graph([node], "made", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    made = as_model(model, "made.onnx")
    return not_measured(made.graph, {"x": ElementType(element), "y": ElementType(element)})


def test_a_kernel_is_known_by_its_element_type() -> None:
    assert _named("Erf", TensorProto.FLOAT) == []
    assert _named("Erf", TensorProto.DOUBLE) == []
    assert _named("Erf", TensorProto.FLOAT16) == ["Erf in float16"]


def test_what_only_moves_elements_is_known_for_each_type() -> None:
    assert _named("Transpose", TensorProto.FLOAT16) == []


def test_operators_of_which_nothing_is_known() -> None:
    assert _named("Hardmax", TensorProto.FLOAT) == ["Hardmax"]


def test_an_attribute_that_chooses_another_kernel() -> None:
    assert _named("BatchNormalization", TensorProto.FLOAT) == []
    assert _named("BatchNormalization", TensorProto.FLOAT, training_mode=1) == [
        "BatchNormalization"
    ]
