"""A graph as ONNX Runtime's planner sees it, and one execution of it with its sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from operator import xor

Dims = tuple[int | str, ...]
"""A shape: sizes, and the names of those that the file leaves open."""


@dataclass(frozen=True, slots=True)
class Value:
    """What the file says of a value.

    ``dims`` is None where the shape, or one dimension of it, is not known: such a value's
    buffer is shared with none. ``element_bytes`` is None for what is no tensor of numbers
    (strings, sequences, optionals). ``on_host``: it is not in the memory of the device whose
    arena is asked for, so that nothing there shares its buffer.
    """

    name: str
    dims: Dims | None
    element_bytes: int | None
    is_tensor: bool = True
    on_host: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """One kernel. Names in ``inputs`` and ``outputs`` may be empty: left out.

    ``implicit`` are the values that its bodies read of this graph. ``aliases`` are pairs
    (input, output) of positions: the output is always the input's buffer. Of ``in_place``
    it may be, where nothing else needs the input.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    implicit: tuple[str, ...] = ()
    aliases: tuple[tuple[int, int], ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()
    module: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in the order in which they run.

    ``outer`` are names of the graphs around it that it reads; like ``inputs`` and
    ``initializers`` they are not its own to free or reuse. ``parent`` is the operator whose
    body it is.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: Mapping[str, Value]
    initializers: frozenset[str] = frozenset()
    outer: tuple[str, ...] = ()
    parent: str = ""


IN_SCRATCH = -1
"""In ``Call.results``: an output of a body that is written to a block of the node's scratch."""


@dataclass(frozen=True, slots=True)
class Call:
    """What one node's kernel takes besides its outputs, in one execution; bytes.

    ``scratch`` are blocks that are alive together until the kernel ends: the first
    ``before`` of them are taken before the outputs. ``passing`` are blocks that are given back
    before the next one is taken, each with the number of blocks that were taken before. With
    ``is_reserved`` all of them lie outside of the arena's regions.

    ``inner`` are the executions of its bodies in turn. A body's outputs are placed as
    ``results`` says, by position in the body: the position of the node's output that it is
    written to at once, ``IN_SCRATCH``, or None where the body has a buffer for it; such a
    buffer lasts until the next execution has made its own, with ``kept`` until the node is
    done. ``early`` outputs have their buffer before a body runs.
    """

    scratch: tuple[int, ...] = ()
    before: int = 0
    passing: tuple[tuple[int, tuple[int, ...]], ...] = ()
    inner: tuple[Execution, ...] = ()
    results: tuple[int | None, ...] = ()
    kept: frozenset[int] = frozenset()
    early: frozenset[str] = frozenset()
    is_reserved: bool = False


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a graph with its sizes.

    ``nbytes`` has the size of each node's output. ``key`` is what memory patterns are kept
    by (``pattern_key``); None where there is none: an input is no tensor, or of no known
    rank. ``calls`` are by a node's position. ``copied`` are the bytes of each input that the
    run copies to the arena's device before its first node, and gives back at its end.
    """

    graph: Graph
    nbytes: Mapping[str, int]
    key: int | None = 0
    calls: Mapping[int, Call] = field(default_factory=dict)
    copied: Mapping[str, int] = field(default_factory=dict)


def pattern_key(shapes: Iterable[tuple[int, ...]]) -> int:
    """What a memory pattern is kept by: all dimensions of the inputs, joined by exclusive or.

    Inputs of other shapes may have the same key, and then the pattern of the first.
    Source: ``CalculateMemoryPatternsKey`` in onnxruntime/core/framework/session_state.cc.
    """
    return reduce(xor, chain.from_iterable(shapes), 0)
