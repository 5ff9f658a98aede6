"""Weights from the protobuf's tensors, dense and sparse; values are read when asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import external_data_helper, numpy_helper

from graphmem.errors import ModelLoadError, one_line, shown
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.external import ExternalBytes, ExternalFiles
from graphmem.sources.onnx.model import Array, Node, Weight

_MOST_BYTES = (1 << 63) - 1
"""What a size of 64 bits can say; torch and ONNX Runtime have no larger tensors."""

_REPEATED = (
    *("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data"),
)


class TensorReader:
    """Makes weights of the tensors of one model."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files = ExternalFiles(path)

    def dense(self, proto: onnx.TensorProto, name: str) -> Weight:
        """A tensor as a weight.

        Raises:
            ModelLoadError: its type is unknown, its size impossible, or its file refused.
        """
        owner = f"{self._path}: tensor {shown(name)}"
        element = element_type(proto.data_type, owner)
        shape = _checked(tuple(proto.dims), element, owner)
        nbytes = element.nbytes(math.prod(shape))
        external = None
        if external_data_helper.uses_external_data(proto):
            entries = {_text(e.key): _text(e.value) for e in proto.external_data}
            external = self._files.bytes_of(entries, f"tensor {shown(name)}")
        return Weight(name, element, shape, _Dense(proto, external, nbytes, owner))

    def sparse(self, proto: onnx.SparseTensorProto, name: str) -> Weight:
        """A sparse tensor as a weight; its values are dense."""
        values = self.dense(proto.values, name)
        indices = self.dense(proto.indices, name)
        owner = f"{self._path}: sparse tensor {shown(name)}"
        shape = _checked(tuple(proto.dims), values.element, owner)
        return Weight(name, values.element, shape, _Sparse(values, indices, shape, owner))

    def filled(self, node: Node, sizes: Weight) -> Weight | None:
        """What a ConstantOfShape gives whose sizes are a weight; None if they can't be read.

        Raises:
            ModelLoadError: no tensor can have these sizes.
        """
        array = sizes.read() if sizes.element is ElementType.INT64 else None
        if array is None or array.ndim != 1:
            return None
        stored = node.attributes.get("value")
        element = stored.element if isinstance(stored, Weight) else ElementType.FLOAT
        shape = _checked(tuple(map(int, array)), element, f"{self._path}: node {node.label}")
        name = node.outputs[0]
        return Weight(name, element, shape, _Filled(stored, shape, f"{self._path}: {name}"))


def holds_values(proto: onnx.TensorProto) -> bool:
    """Whether a tensor has values in its own file."""
    return proto.HasField("raw_data") or any(len(getattr(proto, name)) for name in _REPEATED)


def element_type(number: int, owner: str) -> ElementType:
    """The element type of a number in a file.

    Raises:
        ModelLoadError: ONNX has no such type.
    """
    try:
        return ElementType(number)
    except ValueError:
        raise ModelLoadError(f"{owner}: element type {number} is none of ONNX's") from None


def _checked(shape: tuple[int, ...], element: ElementType, owner: str) -> tuple[int, ...]:
    """The shape, if a tensor can have it."""
    if element is ElementType.UNDEFINED:
        raise ModelLoadError(f"{owner}: it has no element type")
    if any(size < 0 for size in shape):
        raise ModelLoadError(f"{owner}: a dimension of {min(shape)} is negative")
    # Zeros do not excuse the rest: torch multiplies the sizes for the strides.
    if element.nbytes(math.prod(size or 1 for size in shape)) > _MOST_BYTES:
        raise ModelLoadError(
            f"{owner}: {shown('x'.join(map(str, shape)))} elements are more than memory can hold"
        )
    return shape


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


@dataclass(frozen=True, slots=True)
class _Dense:
    """The values of a tensor in the model's own file, or in one beside it."""

    proto: onnx.TensorProto
    external: ExternalBytes | None
    nbytes: int
    owner: str

    def __call__(self) -> Array | None:
        """The values; None where the file beside the model is missing, or has none."""
        proto = self.proto
        if self.external is not None:
            data = self.external.read(self.nbytes, self.owner)
            if data is None:
                return None
            proto = onnx.TensorProto(data_type=proto.data_type, dims=proto.dims, raw_data=data)
        elif self.nbytes and not holds_values(proto):
            return None
        try:
            return numpy_helper.to_array(proto)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise ModelLoadError(
                f"{self.owner}: its values don't fit its shape: {one_line(error)}"
            ) from error


@dataclass(frozen=True, slots=True)
class _Filled:
    """One value all over; zero where the file has none."""

    stored: Weight | None
    shape: tuple[int, ...]
    owner: str

    def __call__(self) -> Array | None:
        """The values [shape]."""
        one = np.zeros(1, np.float32) if self.stored is None else self.stored.read()
        if one is None or one.size != 1:
            raise ModelLoadError(f"{self.owner}: the value of a ConstantOfShape must be one number")
        return np.broadcast_to(one.reshape(()), self.shape)


@dataclass(frozen=True, slots=True)
class _Sparse:
    """The dense values of a sparse tensor: zero but where its indices say."""

    values: Weight
    indices: Weight
    shape: tuple[int, ...]
    owner: str

    def __call__(self) -> Array | None:
        """The values [shape]; None where they lie in a file that is missing."""
        values, indices = self.values.read(), self.indices.read()
        if values is None or indices is None:
            return None
        try:
            made = np.zeros(self.shape, values.dtype)
            where = indices
            if indices.ndim == 2:  # [values, rank]; else they count the elements in order
                where = np.ravel_multi_index(tuple(indices.T), self.shape)
            made.reshape(-1)[where] = values
        except (ValueError, IndexError, TypeError, MemoryError) as error:
            raise ModelLoadError(
                f"{self.owner}: its indices don't fit: {one_line(error)}"
            ) from error
        return made
