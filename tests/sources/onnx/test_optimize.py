"""Files that ONNX Runtime optimizes: what it refuses, and weights beside them or nowhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from graphmem.errors import ModelLoadError
from graphmem.options import Mode, Options
from graphmem.serving.session import Served, serve
from graphmem.sources.inputs import InputRequest
from graphmem.sources.onnx.runtime.refusals import reason

pytest.importorskip("onnxruntime", reason="it optimizes the graph")

_MODEL = (
    "/src/core/graph/model.cc:256 onnxruntime::Model::Model(onnx::ModelProto&&, const "
    "std::unordered_map<std::__cxx11::basic_string<char>, int>*, bool) "
)


def written(path: Path, ir_version: int = 10) -> onnx.ModelProto:
    """Two products [N, 300] @ w [300, 300] with a Tanh between them, w in the file itself."""
    w = np.random.default_rng(0).standard_normal((300, 300), np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Tanh", ["a"], ["b"], name="second"),
        helper.make_node("MatMul", ["b", "v"], ["y"], name="third"),
    ]
    graph = helper.make_graph(
        nodes,
        "made",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 300])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 300])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(2 * w, "v")],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    onnx.save(model, path)
    return model


def beside(path: Path) -> Path:
    """The same with its weights in a file of their own; gives that file."""
    onnx.save(written(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    return path.parent / "w.bin"


def served(path: Path) -> Served:
    request = InputRequest(dims=("N=50",))
    return serve(str(path), request, Options(mode=Mode.INFERENCE))


def peaks(path: Path) -> list[tuple[int, int]]:
    return [(run.requested, run.in_use) for run in served(path).runs]


def test_weights_beside_the_model_change_nothing(tmp_path: Path) -> None:
    written(tmp_path / "whole.onnx")
    beside(tmp_path / "model.onnx")
    assert peaks(tmp_path / "model.onnx") == peaks(tmp_path / "whole.onnx")


def test_weights_whose_file_is_missing_change_nothing_and_are_told(tmp_path: Path) -> None:
    written(tmp_path / "whole.onnx")
    beside(tmp_path / "model.onnx").unlink()
    found = served(tmp_path / "model.onnx")
    assert peaks(tmp_path / "model.onnx") == peaks(tmp_path / "whole.onnx")
    assert [note.what for note in found.unknown] == ["the values of weights in w.bin"]


def test_weights_that_the_file_itself_lacks_change_nothing_and_are_told(tmp_path: Path) -> None:
    model = written(tmp_path / "whole.onnx")
    for weight in model.graph.initializer:
        weight.ClearField("raw_data")
    onnx.save(model, tmp_path / "model.onnx")
    found = served(tmp_path / "model.onnx")
    assert peaks(tmp_path / "model.onnx") == peaks(tmp_path / "whole.onnx")
    assert [note.what for note in found.unknown] == ["the values of weights in model.onnx"]


def test_a_newer_ir_version_is_refused_in_plain_words(tmp_path: Path) -> None:
    written(tmp_path / "model.onnx", ir_version=99)
    with pytest.raises(ModelLoadError, match="can't load it: Unsupported model IR version: 99"):
        served(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (f"Load model from a.onnx failed:{_MODEL}Unsupported model IR version: 14", "Unsupported"),
        (f"Status Message: {_MODEL}rank (3) was false. Rank is 2", "Status Message: rank (3)"),
        ("Error: utils.cc:461 ValidatePath Data path: (none)", "Error: Data path: (none)"),
        ("In Node (n) Op (Conv) at least 3 dimensions", "In Node (n) Op (Conv) at least"),
        ("a.cc:1 void f::<lambda()>::operator()(int) const [with T = int] too many", "too many"),
        ("a.cc:1 f::g(int", "f::g(int"),  # cut off
    ],
)
def test_places_in_onnx_runtimes_source_are_left_out(said: str, told: str) -> None:
    found = reason(RuntimeError(f"[ONNXRuntimeError] : 1 : FAIL : {said}"))
    assert found.startswith(told)
    assert ".cc" not in found
