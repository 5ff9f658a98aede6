"""One operator in a model, run by ONNX Runtime's CPU provider and by the translation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnx import ModelProto, helper, numpy_helper
from torch import Tensor

from graphmem.sources.onnx import rules as _rules  # registers them
from graphmem.sources.onnx.module import build_module
from graphmem.sources.onnx.read import as_model

assert _rules

Array = np.ndarray[Any, Any]
MICROSOFT = "com.microsoft"
OPSET = 17


def one_node(
    op: str,
    inputs: Sequence[Any],
    outputs: int | Sequence[int] = 1,
    *,
    domain: str = MICROSOFT,
    weights: Sequence[int] = (),
    types: Sequence[Any] = (),
    **attributes: Any,
) -> ModelProto:
    """A model of one node.

    Args:
        outputs: how many, or the positions of those that are named.
        weights: positions of inputs that are initializers.
        types: of the outputs; float where left out.
    """
    names = ["" if x is None else f"x{n}" for n, x in enumerate(inputs)]
    wanted = range(outputs) if isinstance(outputs, int) else outputs
    results = [f"y{n}" if n in wanted else "" for n in range(max(wanted) + 1)]
    node = helper.make_node(op, names, results, name="node", domain=domain, **attributes)
    given = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for p, (n, x) in enumerate(zip(names, inputs, strict=True))
        if x is not None and p not in weights
    ]
    held = [
        numpy_helper.from_array(x, n)
        for p, (n, x) in enumerate(zip(names, inputs, strict=True))
        if x is not None and p in weights
    ]
    kinds = dict(zip(wanted, types, strict=False))
    made = [
        helper.make_tensor_value_info(
            f"y{n}", helper.np_dtype_to_tensor_dtype(np.dtype(kinds.get(n, np.float32))), None
        )
        for n in wanted
    ]
    graph = helper.make_graph([node], "one", given, made, held)
    opsets = [helper.make_opsetid("", OPSET)]
    opsets += [helper.make_opsetid(domain, 1)] if domain else []
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def session(model: ModelProto, **settings: Any) -> onnxruntime.InferenceSession:
    """A session on the CPU, without optimization unless the settings say so."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    for name, value in settings.items():
        setattr(options, name, value)
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def by_ort(model: ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """What ONNX Runtime's CPU provider computes."""
    return list(session(model).run(None, dict(feeds)))


def by_translation(model: ModelProto, feeds: Mapping[str, Array]) -> list[Tensor]:
    """What the module computes."""
    module = build_module(as_model(model, "one.onnx"), weights=True).eval()
    given = [torch.from_numpy(feeds[v.name].copy()) for v in model.graph.input if v.name in feeds]
    with torch.no_grad():
        result = module(*given)
    results = result if isinstance(result, tuple) else (result,)
    return list(results)


def feeds_of(model: ModelProto, inputs: Sequence[Any]) -> dict[str, Array]:
    """The arrays for a model of one node."""
    names = {v.name for v in model.graph.input}
    return {f"x{n}": x for n, x in enumerate(inputs) if x is not None and f"x{n}" in names}


def check(
    op: str,
    inputs: Sequence[Any],
    outputs: int | Sequence[int] = 1,
    *,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    steps: int = 0,
    **settings: Any,
) -> list[Array]:
    """Compare the translation with ONNX Runtime; give back ONNX Runtime's outputs.

    Args:
        steps: by how much integers may differ, in at most one element of fifty.
    """
    model = one_node(op, inputs, outputs, **settings)
    feeds = feeds_of(model, inputs)
    wanted = by_ort(model, feeds)
    compare(by_translation(model, feeds), wanted, rtol=rtol, atol=atol, steps=steps)
    return wanted


def compare(
    got: Sequence[Tensor],
    wanted: Sequence[Array],
    *,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    steps: int = 0,
) -> None:
    """Raise AssertionError where results differ in number, type, shape or value."""
    made = [g for g in got if g is not None]
    assert len(made) == len(wanted)
    for mine, theirs in zip(made, wanted, strict=True):
        array = mine.detach().numpy()
        assert array.dtype == theirs.dtype
        assert array.shape == theirs.shape
        if steps and array.dtype.kind in "iu":
            apart = np.abs(array.astype(np.int64) - theirs.astype(np.int64))
            assert apart.max(initial=0) <= steps
            assert np.count_nonzero(apart) * 50 <= apart.size
        else:
            np.testing.assert_allclose(array, theirs, rtol=rtol, atol=atol)
