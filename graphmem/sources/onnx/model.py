"""An ONNX model as plain data: what its protobuf says, with ONNX's defaults filled in.

No weights are held: a ``Weight`` knows its type and shape and can give its values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy.typing as npt

from graphmem.errors import shown
from graphmem.sources.onnx.element_types import ElementType

Array = npt.NDArray[Any]
Dim = int | str | None
"""A dimension: its size, the name of a free one, or None where it has no name."""


class TensorType(NamedTuple):
    """A tensor; ``shape`` None: not even its rank is known."""

    element: ElementType
    shape: tuple[Dim, ...] | None


class SequenceType(NamedTuple):
    """A list of values of one type."""

    element: ValueType


class OptionalType(NamedTuple):
    """A value that may be absent."""

    element: ValueType


class MapType(NamedTuple):
    """A dictionary, as classifiers of ai.onnx.ml return."""

    key: ElementType
    value: ValueType


ValueType = TensorType | SequenceType | OptionalType | MapType


@dataclass(frozen=True, slots=True)
class Weight:
    """An initializer or constant.

    ``read`` gives its values (an array of ``shape``), or None where there are none: in a file
    that is missing. Types of less than a byte and bfloat16 come as arrays of ``ml_dtypes``.
    ``is_literal``: a Constant node gives it, no initializer.
    """

    name: str
    element: ElementType
    shape: tuple[int, ...]
    read: Callable[[], Array | None] = field(compare=False, repr=False)
    is_literal: bool = False

    @property
    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Its bytes, packed."""
        return self.element.nbytes(self.numel)

    def __deepcopy__(self, memo: dict[int, Any]) -> Weight:
        return self  # its values never change


@dataclass(frozen=True, slots=True)
class Node:
    """One operator call. An empty name in ``inputs`` or ``outputs`` is one left out.

    ``version`` is the opset of its domain; attributes are Python numbers, strings (bytes for
    what is not text), tuples of these, ``Weight``, ``TensorType`` or ``Graph``.
    """

    name: str
    op: str
    domain: str
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """``Conv``, or ``com.microsoft.FusedConv`` outside of ONNX's own domain."""
        return f"{self.domain}.{self.op}" if self.domain else self.op

    @property
    def label(self) -> str:
        """Its name and kind, for messages."""
        return f"{shown(self.name)} ({shown(self.kind)[1:-1]})"

    def bodies(self) -> Iterator[tuple[str, Graph]]:
        """The graphs among its attributes."""
        for name, value in self.attributes.items():
            if isinstance(value, Graph):
                yield name, value
            elif isinstance(value, tuple):
                yield from ((name, item) for item in value if isinstance(item, Graph))


class Value(NamedTuple):
    """A named value of a graph; ``type`` None where the file does not say."""

    name: str
    type: ValueType | None


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in the order in which they run; ``weights`` by name.

    ``inputs`` are those that a caller gives: an initializer that is also listed as an input
    (IR version 3) is a weight alone. ``types`` are of inner values, as far as the file has them.
    """

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    weights: Mapping[str, Weight]
    types: Mapping[str, ValueType] = field(default_factory=dict)

    def known_types(self) -> dict[str, ValueType]:
        """The types that it states, of inputs and outputs too."""
        ends = {v.name: v.type for v in (*self.inputs, *self.outputs) if v.type is not None}
        return {**self.types, **ends}

    def initializers(self) -> Iterator[Weight]:
        """Its initializers, and those of the graphs in it."""
        yield from (weight for weight in self.weights.values() if not weight.is_literal)
        for node in self.nodes:
            for _, body in node.bodies():
                yield from body.initializers()

    def read(self) -> frozenset[str]:
        """The names of values that a node or a body reads, and of its outputs."""
        names = {name for node in self.nodes for name in node.inputs}
        names.update(n for node in self.nodes for _, b in node.bodies() for n in b.captured())
        return frozenset(names.union(value.name for value in self.outputs))

    def captured(self) -> tuple[str, ...]:
        """The names that it reads of the graphs around it, each once."""
        known = {value.name for value in self.inputs} | set(self.weights)
        outside: dict[str, None] = {}
        for node in self.nodes:
            names = [*node.inputs, *(n for _, body in node.bodies() for n in body.captured())]
            outside.update(dict.fromkeys(n for n in names if n and n not in known))
            known.update(node.outputs)
        outside.update(dict.fromkeys(v.name for v in self.outputs if v.name not in known))
        return tuple(outside)


@dataclass(frozen=True, slots=True)
class Model:
    """A model; ``opsets`` maps a domain ("" for ai.onnx) to its version."""

    path: str
    graph: Graph
    opsets: Mapping[str, int]
    ir_version: int


@dataclass(frozen=True, slots=True)
class Held:
    """Values that are at hand (a class, so that weights can be pickled)."""

    array: Array

    def __call__(self) -> Array:
        """The values."""
        return self.array


def array_weight(name: str, element: ElementType, array: Array) -> Weight:
    """A weight whose values are at hand."""
    return Weight(name, element, tuple(map(int, array.shape)), Held(array))
