"""A model for ONNX Runtime to optimize where values of weights are missing.

It loads no model without them. What it makes of a graph follows from the values of small
weights, which exporters keep in the model itself, so zeros take the place of the others: in a
file that is one hole, which takes no space on a disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from graphmem.errors import ModelLoadError, shown
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.tensors import holds_values


def missing_values(path: str, proto: onnx.ModelProto) -> tuple[str, ...]:
    """Where values should lie that are not there: files beside a model, or the model itself.

    Args:
        path: where the model lies.
        proto: the model, which was read already: no path in it leaves its folder.
    """
    folder = Path(path).absolute().parent
    found: dict[str, bool] = {}
    for tensor in _tensors(proto.graph):
        if uses_external_data(tensor):
            name = ExternalDataInfo(tensor).location
            found[name] = found.get(name) or not (folder / name).exists()
        elif _nbytes(tensor) and not holds_values(tensor):
            found[Path(path).name] = True
    return tuple(name for name, missing in found.items() if missing)


def stand_in(path: str, proto: onnx.ModelProto, folder: Path) -> str:
    """A copy of a model with zeros for the weights that it does not hold itself.

    Args:
        path: where the model lies; weights of the copy are in a file that is not there.
        proto: the model.
        folder: where to write the copy and its zeros, empty.

    Raises:
        ModelLoadError: a file of that size can't be made.
    """
    made, name = onnx.ModelProto(), _free_name(Path(path).absolute().parent)
    made.CopyFrom(proto)
    largest = 0
    for tensor in _tensors(made.graph):
        if uses_external_data(tensor) or (_nbytes(tensor) and not holds_values(tensor)):
            _point(tensor, name)
            largest = max(largest, _nbytes(tensor))
    target = folder / "model.onnx"
    try:
        (folder / name).touch()
        os.truncate(folder / name, largest)
        target.write_bytes(made.SerializeToString())
    except OSError as error:
        raise ModelLoadError(
            f"{shown(path)}: no copy of its graph can be made: {error.strerror}"
        ) from error
    return str(target)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The weights of a graph and of those in it."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _tensors(attribute.g)


def _nbytes(tensor: onnx.TensorProto) -> int:
    count = 1
    for size in tensor.dims:
        count *= size
    return ElementType(tensor.data_type).nbytes(count)


def _point(tensor: onnx.TensorProto, name: str) -> None:
    """Let a weight's values be the first bytes of a file."""
    del tensor.external_data[:]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=name)
    tensor.external_data.add(key="length", value=str(_nbytes(tensor)))


def _free_name(folder: Path) -> str:
    """A name that nothing has in a folder."""
    name = "zeros"
    while (folder / name).exists():
        name += "_"
    return name
