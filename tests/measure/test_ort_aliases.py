"""Outputs that are always their input's buffer in ONNX Runtime, beside its own profile."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphmem.cli import main
from tests.cpu import as_measured

pytestmark = as_measured

CHANNELS = 4096


def batch_norm(path: Path, opset: int) -> Path:
    """``y = relu(batch_norm(relu(x)))`` while training: new statistics beside y, read by no one."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node(
            "BatchNormalization",
            ["a", "scale", "bias", "mean", "var"],
            ["b", "new_mean", "new_var"],
            training_mode=1,
        ),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    shape = [2, CHANNELS, 3]
    weights = [
        numpy_helper.from_array(np.full(CHANNELS, value, np.float32), name)
        for value, name in enumerate(("bias", "scale", "mean", "var"))
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        weights,
    )
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


@pytest.mark.parametrize("opset", [14, 15])
def test_statistics_are_updated_where_they_lie(
    opset: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    path = batch_norm(tmp_path / "norm.onnx", opset)
    assert main(["verify", str(path), "--format", "json", "--target", "onnxruntime"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["predicted"] == found["measured"]
