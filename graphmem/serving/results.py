"""What the calls of an ONNX model's nodes gave: sizes, by the names of their outputs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.module import OnnxNode
from graphmem.trace.observe import ModuleCall


@dataclass(frozen=True, slots=True)
class Result:
    """A tensor's shape and element type; a sequence's elements are in ``items``."""

    shape: tuple[int, ...] | None
    element: ElementType | None
    items: tuple[Result, ...] = ()

    @property
    def nbytes(self) -> int:
        """The bytes of the tensor."""
        if self.shape is None or self.element is None:
            return 0
        count = 1
        for size in self.shape:
            count *= size
        return self.element.nbytes(count)


NOTHING = Result(None, None)


@dataclass(slots=True)
class GraphCall:
    """One run of a graph: the results by name, and the runs of each node's bodies.

    Bodies are by the outputs of their node: which attribute, and what ran.
    """

    results: dict[str, Result] = field(default_factory=dict)
    bodies: dict[tuple[str, ...], list[tuple[str, GraphCall]]] = field(default_factory=dict)


def describe(value: Any) -> Any:
    """The result of a module, without its tensors."""
    if isinstance(value, Tensor):
        return Result(tuple(value.shape), ElementType.of(value.dtype))
    if isinstance(value, np.ndarray):
        return Result(tuple(value.shape), ElementType.STRING)
    if isinstance(value, tuple):
        return tuple(map(describe, value))
    if isinstance(value, list):
        return Result(None, None, tuple(map(describe, value)))
    return NOTHING


def graph_call(call: ModuleCall) -> GraphCall:
    """The results of the nodes that ran in one call of a graph's module."""
    made = GraphCall()
    for inner in call.inner:
        if not isinstance(inner.module, OnnxNode):
            continue
        node = inner.module.node
        given = inner.result if isinstance(inner.result, tuple) else (inner.result,)
        made.results.update(zip(node.outputs, given, strict=False))
        bodies = list(_bodies(inner))
        if bodies:
            made.bodies[node.outputs] = bodies
    return made


def _bodies(call: ModuleCall) -> Iterator[tuple[str, GraphCall]]:
    names = {id(child): name for name, child in call.module.named_children()}
    for inner in call.inner:
        yield names.get(id(inner.module), ""), graph_call(inner)
