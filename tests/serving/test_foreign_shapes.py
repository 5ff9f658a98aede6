"""The shapes of ONNX Runtime's own operators, beside what its own graph infers of them."""

from __future__ import annotations

import onnx
import pytest

from graphmem.sources.onnx.runtime.dims import Dims, named_dims
from tests.serving.kernels import Kernel
from tests.serving.test_own_buffers import CASES

onnxruntime = pytest.importorskip("onnxruntime", reason="the truth is ONNX Runtime's graph")

_OWN = {name: kernel for name, kernel in CASES.items() if kernel.domain == "com.microsoft"}


def _with_free_batch(kernel: Kernel) -> onnx.ModelProto:
    """The model with a name for the first dimension of each input of several."""
    model = kernel.model()
    for value in model.graph.input:
        if len(value.type.tensor_type.shape.dim) > 1:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    return model


@pytest.mark.parametrize("name", _OWN)
def test_shapes_are_those_that_onnx_runtime_infers(name: str) -> None:
    model = _with_free_batch(_OWN[name])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    known = session.get_outputs()[0].shape

    found = named_dims(Dims(model, model).graph(model.graph).get("y"))

    assert list(found or ()) == known
