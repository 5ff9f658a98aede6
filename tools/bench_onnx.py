"""How long an ONNX graph of many nodes takes, beside onnx's own shape inference.

    python tools/bench_onnx.py [NODES ...]

Each size runs in a process of its own, so that memory is that of the one analysis. It fails
if 20,000 nodes take more than 10 s of CPU time or 1 GiB, or time grows faster than nodes.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

MOST_SECONDS = 10.0
MOST_BYTES = 1 << 30
SIZES = (2_500, 5_000, 10_000, 20_000)
_GROWTH = 1.5
"""Seconds a node of the largest graph over that of the smallest; a quadratic step gives 8."""


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
            name = f"/block.{block}/{op}"
            made.append(helper.make_node(op, inputs, [output], name=name))
        at = names["y"]
    given, result = (
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 64])]
        for name in ("input", at)
    )
    graph = helper.make_graph(made, "layered", given, result, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def measure(path: str) -> dict[str, float]:
    """CPU seconds and peak bytes of an analysis of a file, and of onnx's shape inference."""
    command = [sys.executable, "-m", "graphmem", "analyze", path, "--dim", "batch=8"]
    subprocess.run(
        [*command, "--target", "cuda", "-o", f"{path}.json"],
        check=True,
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, peak = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
    started = time.process_time()
    onnx.shape_inference.infer_shapes_path(path, f"{path}.shaped")
    return {"seconds": seconds, "bytes": peak, "inference": time.process_time() - started}


def main(sizes: list[int]) -> int:
    """Print a line a size; 1 if a limit is passed."""
    found: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for nodes in sizes:
            path = str(Path(folder) / f"{nodes}.onnx")
            onnx.save(layered(nodes), path)
            done = subprocess.run(
                [sys.executable, __file__, "--measure", path], stdout=subprocess.PIPE, check=True
            )
            found[nodes] = result = json.loads(done.stdout.splitlines()[-1])
            print(
                f"{nodes:>7,} nodes: {result['seconds']:6.2f} s CPU, "
                f"{result['bytes'] / 2**20:7.0f} MiB; onnx.shape_inference "
                f"{result['inference']:.2f} s",
                flush=True,
            )
    least, most = min(found), max(found)
    growth = (found[most]["seconds"] / most) / (found[least]["seconds"] / least)
    print(f"seconds a node, {most:,} over {least:,} nodes: {growth:.2f}")
    failed = growth > _GROWTH
    if 20_000 in found:
        last = found[20_000]
        failed |= last["seconds"] > MOST_SECONDS or last["bytes"] > MOST_BYTES
    return int(failed)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2])))
    else:
        sys.exit(main([int(text) for text in sys.argv[1:]] or list(SIZES)))
