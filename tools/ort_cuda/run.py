"""The arena of a session with the CUDA provider: a line for each kernel of its first two runs.

Requested, in use, and held by the arena, in bytes; of kernels on the host those of their own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

_TYPES = {"float": "float32", "double": "float64"}


def main() -> None:
    """Run a model on zeros."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("options", nargs="*", metavar="NAME=VALUE", help="of the provider")
    parser.add_argument("--dim", type=int, default=1, help="of all free dimensions")
    arguments = parser.parse_args()
    given = dict(option.split("=", 1) for option in arguments.options)
    for run, kernels in enumerate(runs(arguments.model, arguments.dim, given), start=1):
        for kernel in kernels:
            print(run, *kernel)


def runs(model: str, dim: int, given: dict[str, str]) -> list[list[tuple[Any, ...]]]:
    """The kernels of two runs: name, operator, provider, and three sizes in bytes."""
    options = onnxruntime.SessionOptions()
    options.enable_profiling = True
    options.log_severity_level = 3
    for name in [name for name in given if name.startswith("session.")]:
        options.add_session_config_entry(name, given.pop(name))
    providers = [("CUDAExecutionProvider", given), "CPUExecutionProvider"]
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = str(Path(folder) / "profile")
        session = onnxruntime.InferenceSession(model, options, providers=providers)
        feeds = {value.name: _zeros(value, dim) for value in session.get_inputs()}
        for _ in range(2):
            session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    return _kernels(events)


def _zeros(value: Any, dim: int) -> Any:
    kind = value.type.removeprefix("tensor(").removesuffix(")")
    shape = [size if isinstance(size, int) else dim for size in value.shape]
    return np.zeros(shape, _TYPES.get(kind, kind))


def _kernels(events: list[dict[str, Any]]) -> list[list[tuple[Any, ...]]]:
    sizes = ("mem_bytes_requested_in_use", "mem_bytes_in_use", "mem_arena_held")
    found: list[list[tuple[Any, ...]]] = [[]]
    for event in events:
        if event["name"] == "model_run":
            found.append([])
        elif event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            args = event["args"]
            name = event["name"].removesuffix("_kernel_time")
            counts = [int(args.get(size, -1)) for size in sizes]
            found[-1].append((name, args["op_name"], args["provider"], *counts))
    return found[:-1]


if __name__ == "__main__":
    main()
