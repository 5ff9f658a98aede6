"""Small ONNX models for tests, in a line or two."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

Shape = Sequence[int | str | None]


def value(name: str, shape: Shape | None = ("n",), element: int = TensorProto.FLOAT) -> Any:
    """A tensor input or output."""
    return helper.make_tensor_value_info(name, element, shape)


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Any] = ("x",),
    outputs: Sequence[Any] = ("y",),
    weights: Sequence[onnx.TensorProto] = (),
    **more: Any,
) -> onnx.GraphProto:
    """A graph; inputs and outputs that are names are vectors of ``n`` floats."""
    given, results = (
        [value(v) if isinstance(v, str) else v for v in side] for side in (inputs, outputs)
    )
    return helper.make_graph(list(nodes), "g", given, results, list(weights), **more)


def model(
    nodes: Sequence[onnx.NodeProto], *args: Any, functions: Any = (), **more: Any
) -> onnx.ModelProto:
    """A model of opset 17, whose functions are of domain ``own``."""
    opsets = [helper.make_opsetid(*o) for o in (("", 17), ("own", 1), ("com.acme", 1))]
    made = graph(nodes, *args, **more)
    return helper.make_model(made, opset_imports=opsets, functions=list(functions), ir_version=10)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node; names are given with spaces between."""
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def write(folder: Path, proto: onnx.ModelProto, name: str = "model.onnx") -> str:
    """Write a model into a folder; gives its path."""
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return str(path)
