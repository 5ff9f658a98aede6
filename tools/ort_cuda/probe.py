"""What the CUDA provider's kernels have on the host, share and allocate, one operator at a time.

For the node tests of the onnx package with one operator, in the stand-in's environment. An input
of which a copy to the host is made, when a node of the device gives it, is read on the host;
likewise an output. Where an output takes no memory, it is an alias of an input or, if the input
is used nowhere else, written in its place. ``scratch``: more was in use while the kernel ran.
A kernel may crash where it reads what another would have computed: give the operators, or a
range of cases (``--from``, ``--to``), and go on behind it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

sys.path.insert(0, str(Path(__file__).parents[2]))
from tools import ort_kernels

Arrays = dict[str, Any]


def main() -> None:
    """Print a line for each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ops", nargs="*", metavar="OP")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--to", dest="last", type=int, default=None)
    arguments = parser.parse_args()
    cases = list(enumerate(ort_kernels._cases()))
    for number, case in cases[arguments.first : arguments.last]:
        (node,) = case.model.graph.node
        if not arguments.ops or node.op_type in arguments.ops:
            inputs = ort_kernels._arrays(case)
            facts = "-" if inputs is None else _tried(case.model, inputs)
            print(number, node.op_type, case.name, facts, flush=True)


def _tried(model: onnx.ModelProto, inputs: Arrays) -> str:
    try:
        return " ".join(_facts(model, inputs))
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:80]!r}"


def _facts(model: onnx.ModelProto, inputs: Arrays) -> Iterator[str]:
    (node,) = model.graph.node
    _, own = _run(model, inputs, set(), set(), set())
    if own is None or own["provider"] != "CUDAExecutionProvider":
        yield "cpu"
        return
    if int(own.get("mem_in_use_peak", 0)) > int(own.get("mem_bytes_in_use", 0)):
        yield "scratch"
    there, left = set(inputs), {name for name in node.output if name}
    for name in inputs:
        if "MemcpyToHost" in _run(model, inputs, {name}, set(), set())[0]:
            there.remove(name)
            yield f"host_input:{list(node.input).index(name)}"
    for name in sorted(left):
        if "MemcpyFromHost" in _run(model, inputs, set(), set(), {name})[0]:
            left.remove(name)
            yield f"host_output:{list(node.output).index(name)}"
    yield from _shared(model, inputs, there, left)


def _shared(
    model: onnx.ModelProto, inputs: Arrays, there: set[str], left: set[str]
) -> Iterator[str]:
    (node,) = model.graph.node
    for later in (there, *(there - {name} for name in sorted(there))):
        _, own = _run(model, inputs, there, later, left)
        if own is None or "mem_requested_in_use_delta" not in own:
            return
        taken = int(own["mem_requested_in_use_delta"])
        sizes = map(ort_kernels._nbytes, own["output_type_shape"])
        made = dict(zip(filter(None, node.output), sizes, strict=True))
        whole = sum(made[name] for name in left)
        sharing = [n for n in sorted(left) if made[n] and taken == whole - made[n]]
        freed = sorted(there - later)
        for name in sharing:
            source = list(node.input).index(freed[0]) if freed else "any"
            yield f"{'in_place' if freed else 'alias'}:{source}>{list(node.output).index(name)}"
        if sharing and not freed:
            return


def _run(
    model: onnx.ModelProto, inputs: Arrays, there: set[str], later: set[str], left: set[str]
) -> tuple[list[str], dict[str, Any] | None]:
    """The operators that ran, and what the profile says of the one that is probed.

    Args:
        model: of one node.
        inputs: its inputs.
        there: those that come from a node of the device.
        later: those of them that are used once more at the end.
        left: the outputs that go to a node of the device.
    """
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    text = _wrapped(model, there, later, left).SerializeToString()
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(text, options, providers=providers)
        session.run(None, {n + "_given" * (n in there): a for n, a in inputs.items()})
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    ran = [e for e in events if e["name"].endswith("_kernel_time")]
    own = next((e["args"] for e in ran if e["name"] == "probed_kernel_time"), None)
    return [e["args"]["op_name"] for e in ran], own


def _wrapped(
    model: onnx.ModelProto, there: set[str], later: set[str], left: set[str]
) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    (node,) = graph.node
    node.name = "probed"
    ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in (*graph.input, *graph.output)}
    before = [ort_kernels._turn(f"{n}_given", n, ranks[n]) for n in sorted(there)]
    before += [ort_kernels._turn(n, f"{n}_later", ranks[n]) for n in sorted(later)]
    after = [ort_kernels._turn(n, f"{n}_last", ranks[n]) for n in sorted(left)]
    nodes = [*before, onnx.NodeProto.FromString(node.SerializeToString()), *after]
    outputs = [_named(v, f"{v.name}_later") for v in graph.input if v.name in later]
    outputs += [_named(v, f"{v.name}_last" if v.name in left else v.name) for v in graph.output]
    for value in graph.input:
        value.name += "_given" * (value.name in there)
    del graph.node[:], graph.output[:]
    graph.node.extend(nodes)
    graph.output.extend(outputs)
    return made


def _named(value: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
    made = onnx.ValueInfoProto()
    made.CopyFrom(value)
    made.name = name
    return made


if __name__ == "__main__":
    main()
