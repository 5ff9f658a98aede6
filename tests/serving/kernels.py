"""One kernel in ONNX Runtime's profile beside the prediction of all that it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from graphmem.measure.ort import feed_of, measured_runs
from graphmem.options import Mode, Options
from graphmem.ort import Moment
from graphmem.serving.session import serve
from graphmem.serving.settings import ServeSettings
from graphmem.sources.inputs import InputRequest

Array = npt.NDArray[Any]
Figures = tuple[int, int, int, int]

_GENERATOR = np.random.default_rng(0)


@dataclass(frozen=True)
class Kernel:
    """A node: its inputs by name, those that are weights, and its attributes.

    ``reads`` are the names of its inputs, "" for one that is left out; the first comes from a
    node before it.
    """

    op: str
    inputs: Mapping[str, Array]
    weights: Mapping[str, Array] = field(default_factory=dict)
    reads: Sequence[str] = ()
    outputs: Sequence[str] = ("y",)
    domain: str = ""
    opset: int = 17
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def model(self) -> onnx.ModelProto:
        """A model with this node behind a Transpose that changes nothing."""
        first = next(iter(self.inputs))
        reads = ["turned" if name == first else name for name in self.reads or self.inputs]
        nodes = [
            helper.make_node(
                "Transpose", [first], ["turned"], perm=range(self.inputs[first].ndim), name="turn"
            ),
            helper.make_node(self.op, reads, list(self.outputs), "probed", domain=self.domain),
        ]
        nodes[1].attribute.extend(helper.make_attribute(k, v) for k, v in self.attributes.items())
        values = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in self.inputs.items()
        ]
        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        ends = [onnx.ValueInfoProto(name=name) for name in self.outputs if name]
        graph = helper.make_graph(nodes, "made", values, ends, weights)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def floats(*shape: int) -> Array:
    """Random numbers in fp32."""
    return _GENERATOR.standard_normal(shape, np.float32)


def small(dtype: npt.DTypeLike, *shape: int) -> Array:
    """Random numbers from 1 to 99."""
    return _GENERATOR.integers(1, 100, shape).astype(dtype)


def figures(
    kernel: Kernel, folder: Path, settings: ServeSettings
) -> tuple[list[Figures], list[Figures]]:
    """What is predicted and measured after each kernel of both runs.

    Requested bytes, bytes in use, the most that was in use so far, and what the arena holds.
    """
    path = str(folder / "kernel.onnx")
    onnx.save(kernel.model(), path)
    served = serve(path, InputRequest(), Options(mode=Mode.INFERENCE), settings)
    feeds = {name: feed_of(value) for name, value in served.values.items() if value is not None}
    real = measured_runs(path, {**feeds, **kernel.inputs}, settings)
    predicted = [_figures(moment) for run in served.runs for moment in run.moments]
    return predicted, [_figures(moment) for run in real for moment in run]


def _figures(moment: Moment) -> Figures:
    return moment.requested, moment.in_use, moment.peak, moment.held
