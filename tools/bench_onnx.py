"""How long an ONNX graph of many nodes takes, beside onnx's shape inference and onnxsim's plan.

    python tools/bench_onnx.py [NODES ...]

Each analysis runs in a process of its own, so that time and memory are its own, imports
included. The default plan is that of ONNX Runtime, which optimizes the graph itself: its part
stands apart, and beside the limits. onnxsim plans the same graph with its sizes written in, and
is left out where it is not installed. It fails if 20,000 nodes take more than 10 s of CPU time
or 1 GiB, or time grows faster than nodes.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

MOST_SECONDS = 10.0
MOST_BYTES = 1 << 30
SIZES = (2_500, 5_000, 10_000, 20_000)
_GROWTH = 1.5
"""Seconds a node of the largest graph over that of the smallest; a quadratic step gives 8."""
_IR = 10
"""An IR version that ONNX Runtime reads; onnx writes the newest that it has."""
_BATCH = 8
_PLANS = {"cuda": ("--target", "cuda"), "onnxruntime": ("--target", "onnxruntime")}


def layered(nodes: int) -> onnx.ModelProto:
    """A chain of blocks of five nodes: MatMul, Add, Relu, Mul and a sum with the block's input."""
    weight = np.zeros((64, 64), np.float32)
    made, weights, at = [], [], "input"
    for block in range(nodes // 5):
        names = {part: f"{part}_{block}" for part in ("w", "b", "s", "m", "a", "r", "p", "y")}
        for part, array in (("w", weight), ("b", weight[0]), ("s", weight[0])):
            weights.append(numpy_helper.from_array(array, names[part]))
        for op, inputs, output in (
            ("MatMul", [at, names["w"]], names["m"]),
            ("Add", [names["m"], names["b"]], names["a"]),
            ("Relu", [names["a"]], names["r"]),
            ("Mul", [names["r"], names["s"]], names["p"]),
            ("Add", [names["p"], at], names["y"]),
        ):
            name = f"/block.{block}/{output}"  # ONNX Runtime wants each name once
            made.append(helper.make_node(op, inputs, [output], name=name))
        at = names["y"]
    given, result = (
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 64])]
        for name in ("input", at)
    )
    graph = helper.make_graph(made, "layered", given, result, weights)
    return helper.make_model(graph, ir_version=_IR, opset_imports=[helper.make_opsetid("", 17)])


def analyzed(path: str, target: tuple[str, ...]) -> dict[str, float]:
    """CPU seconds and peak bytes of the analysis of a file, as a user starts it."""
    command = [sys.executable, "-m", "graphmem", "analyze", path, "--dim", f"batch={_BATCH}"]
    _, status, used = os.wait4(subprocess.Popen([*command, *target, "-o", f"{path}.json"]).pid, 0)
    if status:
        raise SystemExit(f"graphmem ended with {os.waitstatus_to_exitcode(status)}")
    return {"seconds": used.ru_utime + used.ru_stime, "bytes": used.ru_maxrss * 1024}


def seconds_of(work: Callable[[], Any]) -> float:
    """CPU seconds of a function."""
    started = time.process_time()
    work()
    return time.process_time() - started


def optimizer_seconds(path: str) -> float:
    """Of ONNX Runtime's own optimizer, which an analysis of its plan waits for."""
    from graphmem.sources.onnx.read import load_proto
    from graphmem.sources.onnx.runtime.optimize import optimized

    original = load_proto(path)
    return seconds_of(lambda: optimized(path, original))


def inference_seconds(path: str) -> float:
    """Of onnx's own shape inference."""
    return seconds_of(lambda: onnx.shape_inference.infer_shapes_path(path, f"{path}.shaped"))


def onnxsim_seconds(path: str) -> float | None:
    """Of onnxsim's plan of the activations; it plans no free dimension."""
    if importlib.util.find_spec("onnxsim") is None:
        return None
    onnxsim: Any = importlib.import_module("onnxsim")
    model = onnx.load(path)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = _BATCH
    return seconds_of(lambda: onnxsim.plan_activation_memory(model))


ALONE = {
    "optimizer": optimizer_seconds,
    "inference": inference_seconds,
    "onnxsim": onnxsim_seconds,
}


def measure(nodes: int, folder: str) -> dict[str, dict[str, float]]:
    """All of one size; what is not installed is left out."""
    path = str(Path(folder) / f"{nodes}.onnx")
    onnx.save(layered(nodes), path)
    found = {plan: analyzed(path, target) for plan, target in _PLANS.items()}
    for name in ALONE:
        command = [sys.executable, __file__, "--alone", name, path]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
        seconds = json.loads(done.stdout.splitlines()[-1])
        if seconds is not None:
            found[name] = {"seconds": seconds}
    return found


def line(nodes: int, found: dict[str, dict[str, float]]) -> str:
    """The measurements of one size, as text."""
    parts = [f"{nodes:>7,} nodes:"]
    for plan in _PLANS:
        one = found[plan]
        parts.append(f"{plan} {one['seconds']:.2f} s CPU, {one['bytes'] / 2**20:.0f} MiB")
    optimizer = found["optimizer"]["seconds"]
    parts[-1] += f" ({optimizer:.2f} s of it ONNX Runtime's optimizer)"
    parts.append(f"onnx.shape_inference {found['inference']['seconds']:.2f} s")
    other = found.get("onnxsim")
    parts.append("onnxsim not installed" if other is None else f"onnxsim {other['seconds']:.2f} s")
    return parts[0] + " " + "; ".join(parts[1:])


def own_seconds(found: dict[str, dict[str, float]], plan: str) -> float:
    """The CPU seconds of a plan without ONNX Runtime's optimizer."""
    other = found["optimizer"]["seconds"] if plan == "onnxruntime" else 0.0
    return found[plan]["seconds"] - other


def main(sizes: list[int]) -> int:
    """Print a line a size; 1 if a limit is passed."""
    found: dict[int, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for nodes in sizes:
            found[nodes] = measure(nodes, folder)
            print(line(nodes, found[nodes]), flush=True)
    least, most = min(found), max(found)
    failed = False
    for plan in _PLANS:
        growth = own_seconds(found[most], plan) / most / (own_seconds(found[least], plan) / least)
        print(f"{plan}: seconds a node, {most:,} over {least:,} nodes: {growth:.2f}")
        failed |= growth > _GROWTH
        if 20_000 in found:
            failed |= own_seconds(found[20_000], plan) > MOST_SECONDS
            failed |= found[20_000][plan]["bytes"] > MOST_BYTES
    return int(failed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--alone"]:
        print(json.dumps(ALONE[sys.argv[2]](sys.argv[3])))
    else:
        sys.exit(main([int(text) for text in sys.argv[1:]] or list(SIZES)))
