"""Which inputs ONNX Runtime's CPU kernels write their outputs over, measured with its profile.

For every operator of the onnx package's node tests: each input comes from a node of its own,
and each output goes to one. Where the profile says that the operator takes no memory for an
output if one of the inputs is used nowhere else, the kernel may work in place; where it does
so although the input is used later, the output is an alias. It also prints the operators
whose kernels take memory for themselves.

    python tools/ort_kernels.py
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper


def main(chosen: list[str]) -> None:
    """Print the table of what was measured."""
    found: dict[str, set[str]] = defaultdict(set)
    for case in _cases():
        (node,) = case.model.graph.node
        if chosen and node.op_type not in chosen:
            continue
        version = next(o.version for o in case.model.opset_import if o.domain == node.domain)
        found[f"{node.op_type} {version}"] |= set(_facts(case))
    for name, facts in sorted(found.items()):
        print(name, *sorted(facts))


def _cases() -> list[Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    models = ((case, case.model) for case in cases)
    return [c for c, m in models if m and len(m.graph.node) == 1 and not m.functions]


def _facts(case: Any) -> list[str]:
    inputs = _arrays(case)
    if inputs is None:
        return []
    facts = []
    names = list(dict.fromkeys(n for n in case.model.graph.node[0].input if n))
    base = _taken(case, inputs, later=set(names))
    if base is None:
        return ["-"]
    taken, outputs, scratch = base
    if scratch > 0:
        facts.append("scratch")
    for o, nbytes in enumerate(outputs):
        if nbytes and taken == sum(outputs) - nbytes:
            facts.append(f"alias>{o}")
            return facts
    for i, name in enumerate(case.model.graph.node[0].input):
        if name not in inputs:
            continue
        found = _taken(case, inputs, later=set(names) - {name})
        for o, nbytes in enumerate(outputs):
            if found and nbytes and found[0] == sum(outputs) - nbytes:
                facts.append(f"{i}>{o}")
    return facts or ["none"]


def _arrays(case: Any) -> dict[str, np.ndarray[Any, Any]] | None:
    values = case.data_sets[0][0]
    names = [v.name for v in case.model.graph.input]
    if len(set(names)) != len(values):
        return None
    made = {}
    for name, value in zip(names, values, strict=True):
        if isinstance(value, onnx.TensorProto):
            value = numpy_helper.to_array(value)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
            return None
        made[name] = value
    return made


def _taken(
    case: Any, inputs: dict[str, np.ndarray[Any, Any]], later: set[str]
) -> tuple[int, list[int], int] | None:
    """The bytes that the operator takes, those of each output, and of the kernel's scratch."""
    model = _wrapped(case.model, later)
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder) / "profile")
        try:
            session = onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            session.run(None, {f"{n}_given": a for n, a in inputs.items()})
        except Exception:
            return None
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    own = next((e["args"] for e in events if e["name"] == "probed_kernel_time"), None)
    if own is None or "mem_requested_in_use_delta" not in own:
        return None
    sizes = [_nbytes(t) for t in own["output_type_shape"]]
    rest = int(own["mem_in_use_peak"]) - int(own["mem_bytes_in_use"])
    return int(own["mem_requested_in_use_delta"]), sizes, rest


_BYTES = {"float": 4, "double": 8, "int64": 8, "int32": 4, "bool": 1, "uint8": 1, "int8": 1}
_BYTES |= {"float16": 2, "uint64": 8, "uint32": 4, "int16": 2, "uint16": 2, "bfloat16": 2}


def _nbytes(tensor: dict[str, list[int]]) -> int:
    ((kind, shape),) = tensor.items()
    return _BYTES.get(kind, 0) * int(np.prod(shape))


def _wrapped(model: onnx.ModelProto, later: set[str]) -> onnx.ModelProto:
    """The model with a node before each input and behind each output.

    Args:
        later: the inputs that are needed once more at the end.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    (node,) = graph.node
    node.name = "probed"
    nodes, outputs = [], []
    for value in graph.input:
        rank = len(value.type.tensor_type.shape.dim)
        nodes.append(_turn(f"{value.name}_given", value.name, rank))
    for value in graph.input:
        if value.name in later:  # of two that may run, ONNX Runtime runs the later one first
            rank = len(value.type.tensor_type.shape.dim)
            nodes.append(_turn(value.name, f"{value.name}_later", rank))
            outputs.append(onnx.ValueInfoProto(name=f"{value.name}_later"))
            outputs[-1].type.CopyFrom(value.type)
    nodes.append(node)
    for value in list(graph.output):
        rank = len(value.type.tensor_type.shape.dim)
        nodes.append(_turn(value.name, f"{value.name}_last", rank))
        outputs.append(onnx.ValueInfoProto(name=f"{value.name}_last"))
        outputs[-1].type.CopyFrom(value.type)
    for value in graph.input:
        value.name += "_given"
    del graph.node[:], graph.output[:]
    graph.node.extend(nodes)
    graph.output.extend(outputs)
    return made


def _turn(name: str, to: str, rank: int) -> onnx.NodeProto:
    made = helper.make_node("Transpose", [name], [to])
    if rank > 1:
        made.attribute.append(helper.make_attribute("perm", range(rank)))
    return made


if __name__ == "__main__":
    main(sys.argv[1:])
