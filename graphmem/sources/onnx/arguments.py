"""The arguments of an ONNX model's forward, from its inputs' types and what the user says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from graphmem.errors import InputError, shown
from graphmem.options import nearest
from graphmem.sources.dtypes import dtype_name
from graphmem.sources.inputs import InputRequest, InputSpec, spec
from graphmem.sources.onnx.dims import FreeDims
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import (
    Dim,
    Graph,
    MapType,
    Model,
    OptionalType,
    SequenceType,
    TensorType,
    Value,
    ValueType,
)
from graphmem.sources.onnx.names import identifier

_MOST_BYTES = (1 << 63) - 1
"""Of one tensor: what torch can address."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments by position, and the sizes of free dimensions by name.

    A tensor is an ``InputSpec``; a sequence a list of what ``--input`` gave for it, empty by
    default; an optional that nobody gave is None; strings are a numpy array of empty ones.
    """

    args: tuple[Any, ...]
    sizes: dict[str, int]


def arguments_of(model: Model, asked: InputRequest) -> Arguments:
    """What a model's forward is called with.

    Raises:
        InputError: an input or a size is missing, unknown, or said twice.
    """
    inputs = model.graph.inputs
    given = _given(model.path, inputs, asked)
    dims = _dims(model, asked, given)
    args = [_argument(model.path, v, given.get(i, []), dims, i) for i, v in enumerate(inputs)]
    return Arguments(tuple(args), dict(dims.sizes))


def _dims(model: Model, asked: InputRequest, given: dict[int, list[InputSpec]]) -> FreeDims:
    inputs = model.graph.inputs
    shapes = tuple(_shape(value.type, bool(given.get(i))) for i, value in enumerate(inputs))
    dims = FreeDims(model.path, tuple(v.name for v in inputs), shapes, _texts(model.graph))
    for text in asked.dims:
        dims.dim(text)
    for index, specs in given.items():
        if shapes[index] is not None:
            dims.input(index, specs[0].shape, f"--input {inputs[index].name}={_shape_of(specs[0])}")
    if asked.batch is not None:
        dims.batch(asked.batch)
    if asked.seq is not None:
        dims.seq(asked.seq)
    dims.finish(asked.default_dim)
    return dims


def _texts(graph: Graph) -> Iterator[str]:
    for known in graph.known_types().values():
        yield from (d for d in _shape(known, True) or () if isinstance(d, str))


def _shape(kind: ValueType | None, given: bool) -> tuple[Dim, ...] | None:
    """The dimensions that must have sizes: not those of an optional that is left out."""
    if isinstance(kind, OptionalType):
        return _shape(kind.element, given) if given else None
    return kind.shape if isinstance(kind, TensorType) else None


def _shape_of(given: InputSpec) -> str:
    return "x".join(map(str, given.shape)) or ":"


def _given(path: str, inputs: tuple[Value, ...], asked: InputRequest) -> dict[int, list[InputSpec]]:
    """What ``--input`` gives, by the position of the input.

    Those without a name are for the inputs in order.
    """
    found: dict[int, list[InputSpec]] = {}
    position = 0
    for text in asked.inputs:
        index, rest = _named(path, inputs, text)
        if index is None:
            index, position = position, position + 1
        if index >= len(inputs):
            raise InputError(f"--input {shown(text)}: {path} has {len(inputs)} inputs")
        read = _read(inputs[index], rest)
        if index in found and not isinstance(inputs[index].type, SequenceType):
            raise InputError(f"--input: {shown(inputs[index].name)} is given twice")
        found.setdefault(index, []).append(read)
    return found


def _named(path: str, inputs: tuple[Value, ...], text: str) -> tuple[int | None, str]:
    """The input that a text names (None: none), and its rest, ``SHAPE[:DTYPE][=FILL]``.

    Names may have any letters; they are also known as Python writes them.
    """
    matches = [
        (len(name), index)
        for index, value in enumerate(inputs)
        for name in (value.name, identifier(value.name))
        if text.startswith(f"{name}=")
    ]
    if matches:
        length, index = max(matches, key=lambda match: match[0])
        return index, text[length + 1 :]
    head, equals, _ = text.partition("=")
    if equals and not head.replace("x", "").isdecimal() and ":" not in head:
        names = [value.name for value in inputs]
        hint = nearest(head, names) or f"; it has {', '.join(map(shown, names[:10])) or 'none'}"
        raise InputError(f"--input {shown(text)}: {path} has no input {shown(head)}{hint}")
    return None, text


def _read(value: Value, text: str) -> InputSpec:
    element = _element(value.type)
    dtype = None if element is None else element.dtype
    default = dtype or torch.float32
    if not text or text[0] == "=":  # a scalar has no size to write
        text = f":{dtype_name(default)}{text}"
    read = spec(text, default)
    if dtype is not None and read.dtype != dtype:
        raise InputError(
            f"--input {value.name}: its type in the file is {dtype_name(dtype)}, "
            f"not {dtype_name(read.dtype)}; leave the type out"
        )
    return read


def _element(kind: ValueType | None) -> ElementType | None:
    while isinstance(kind, SequenceType | OptionalType):
        kind = kind.element
    return kind.element if isinstance(kind, TensorType) else None


def _argument(path: str, value: Value, given: list[InputSpec], dims: FreeDims, index: int) -> Any:
    kind = value.type
    while isinstance(kind, OptionalType):
        if not given:
            return None
        kind = kind.element
    if isinstance(kind, MapType):
        raise InputError(f"{path}: input {shown(value.name)} is a map, which is no tensor")
    if isinstance(kind, SequenceType):
        return [_filled(one) for one in given]
    if kind is None or kind.shape is None:
        if not given:
            raise InputError(
                f"{path}: the file does not say the shape of input {shown(value.name)}; "
                f"give it, as in: --input {value.name}=8x3x224x224"
            )
        return _checked(path, value, given[0])
    return _tensor(path, value, kind.element, dims.shape(index), given)


def _tensor(
    path: str, value: Value, element: ElementType, shape: tuple[int, ...], given: list[InputSpec]
) -> Any:
    if element is ElementType.STRING:
        return np.full(shape, "", dtype=object)
    dtype = element.dtype
    if dtype is None:
        raise InputError(f"{path}: input {shown(value.name)} has no element type")
    made = InputSpec(shape, dtype, given[0].fill if given else None, identifier(value.name))
    return _checked(path, value, made)


def _checked(path: str, value: Value, made: InputSpec) -> Any:
    if math.prod(size or 1 for size in made.shape) * made.dtype.itemsize > _MOST_BYTES:
        raise InputError(
            f"{path}: input {shown(value.name)} of {_shape_of(made)} is more than memory can hold"
        )
    return _filled(made)


def _filled(made: InputSpec) -> Any:
    """A real tensor where the values are known."""
    return made if made.fill is None else made.materialize()
