"""An ONNX model as a ``torch.fx.GraphModule`` that computes and trains.

Each ONNX node is a submodule, so that reports speak of the nodes by their names: node
``/layer1/conv/Conv`` is module ``layer1.conv.Conv``, of type ``Conv``. Its weights are its
parameters; of several nodes that share one, each has the same parameter.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, fx, nn

from graphmem import collector
from graphmem.errors import ModelLoadError, shown
from graphmem.sources.onnx import bounds
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import Array, Graph, Model, Node, ValueType, Weight
from graphmem.sources.onnx.names import UniqueNames, identifier
from graphmem.sources.onnx.registry import Body, Call, Registered, Rule, find_rule
from graphmem.sources.onnx.tree import MODULE_NAMES, ModuleTree
from graphmem.sources.onnx.user_rules import user_rule
from graphmem.sources.onnx.values import as_constant

_SMALL = 1 << 12
"""Elements of a constant up to which its values are kept where weights are left out."""

_SMALL_INTEGERS = 1 << 22
"""The same of integers and booleans, which may decide sizes: what a trace keeps the values of
(``graphmem.trace.known.MOST_ELEMENTS``)."""

_INTEGERS = frozenset(
    {
        *(ElementType.INT64, ElementType.INT32, ElementType.INT16, ElementType.BOOL),
        *(ElementType.UINT64, ElementType.UINT32, ElementType.UINT16),
    }
)
_FLOATS = frozenset(
    {ElementType.FLOAT, ElementType.FLOAT16, ElementType.BFLOAT16, ElementType.DOUBLE}
)

Missing = Callable[[Node], Registered | None]
"""What to run for a node without a rule."""


_NONE: frozenset[int] = frozenset()
"""Of most nodes: one object for all of them."""

_GIVEN = 0
"""The source of an input that forward is given."""


class _Plain(NamedTuple):
    """The source of an input that is a weight and no tensor: strings."""

    value: Any


class OnnxNode(nn.Module):
    """One node. ``forward`` takes the inputs that are not its weights, and captured values.

    ``_sources`` says of each input where it is from: the name of a weight here, ``_GIVEN``,
    ``_Plain``, or None for one that is left out.

    Args:
        call: the node.
        registered: its rule.
        weights: weights by the position of the input that they are.
        bodies: its graphs, each with the names that it captures.
    """

    _call: Call
    _rule: Rule
    _sources: tuple[str | int | _Plain | None, ...]
    _bodies: tuple[tuple[str, str, int], ...]  # attribute, name here, how many values it captures

    def __init__(
        self,
        call: Call,
        registered: Registered,
        weights: Mapping[int, Tensor | Any],
        bodies: Mapping[str, tuple[fx.GraphModule, tuple[str, ...]]],
    ) -> None:
        super().__init__()
        names = UniqueNames(_OWN_NAMES)
        places = {name: names.of(identifier(name)) for name in bodies}
        made: dict[str, Any] = {
            "_call": call,
            "_rule": registered.function,
            "_sources": tuple(
                self._source(name, weights[p], names) if p in weights else _GIVEN if name else None
                for p, name in enumerate(call.node.inputs)
            ),
            "_bodies": tuple((n, places[n], len(captured)) for n, (_, captured) in bodies.items()),
        }
        self.__dict__.update(made)  # a module's own __setattr__ takes half the time of a build
        for name, (body, _) in bodies.items():
            self.add_module(places[name], body)

    @property
    def node(self) -> Node:
        """The node that it is."""
        return self._call.node

    def _get_name(self) -> str:
        return self._call.node.kind

    def __getstate__(self) -> dict[str, Any]:
        # Many rules are made in a function, which can't be pickled: they are looked up again.
        found = _rule_of(self._call.node)
        if found is None or found.function is not self._rule:
            return self.__dict__
        return {name: value for name, value in self.__dict__.items() if name != "_rule"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        if "_rule" not in state:
            found = _rule_of(self._call.node)
            if found is None:
                raise ModelLoadError(f"node {self._call.node.label}: the operator has no rule here")
            self.__dict__["_rule"] = found.function

    def _source(self, given: str, value: Any, names: UniqueNames) -> str | _Plain:
        """Hold a weight; gives the name that it has here."""
        if not isinstance(value, Tensor):
            return _Plain(value)
        name = names.of(identifier(given.rpartition(".")[2]))
        if isinstance(value, nn.Parameter):
            self._parameters[name] = value
        else:
            self._buffers[name] = value
        return name

    def forward(self, *given: Any) -> Any:
        """Run the rule: its output, or a tuple of its outputs."""
        rest = iter(given)
        inputs = [self._input(source, rest) for source in self._sources]
        while inputs and inputs[-1] is None:
            inputs.pop()
        call = self._call
        if self._bodies or self.training != call.training:
            bound = {name: self._bound(own, count, rest) for name, own, count in self._bodies}
            call = replace(call, bodies=bound, training=self.training)
        with bounds.asking():
            return self._rule(call, *inputs)

    def _input(self, source: str | int | _Plain | None, rest: Iterator[Any]) -> Any:
        if isinstance(source, str):
            return getattr(self, source)
        if isinstance(source, _Plain):
            return source.value
        return None if source is None else next(rest)

    def _bound(self, name: str, captured: int, rest: Iterator[Any]) -> Body:
        outside = [next(rest) for _ in range(captured)]
        body = getattr(self, name)

        def run(*inputs: Any) -> tuple[Any, ...]:
            result = body(*inputs, *outside)
            return result if isinstance(result, tuple) else (result,)

        return run


@cache
def _with_rules() -> None:
    """Register all rules; late, since some of them need this file."""
    import_module("graphmem.sources.onnx.rules")


def _rule_of(node: Node) -> Registered | None:
    _with_rules()

    return user_rule(node) or find_rule(node)


_OWN_NAMES = MODULE_NAMES | {"_call", "_rule", "_sources", "_bodies"} | {*vars(OnnxNode)}


def build_module(model: Model, *, weights: bool, missing: Missing | None = None) -> fx.GraphModule:
    """A model as a module; its forward takes the graph's inputs, by position or name.

    Parameters are the initializers of floats that have a dimension. Constant nodes hold what the
    code of a model has as numbers, and are not trained; but in a file without such initializers
    they are its weights, as Paddle2ONNX writes them.

    Args:
        weights: give parameters their values; otherwise they, and large constants, are on the
            meta device.
        missing: gives a rule for operators that have none.

    Raises:
        ModelLoadError: an operator has no rule, or an input is defined nowhere.
    """
    trains_literals = not any(map(_is_weight, model.graph.initializers()))
    builder = _Builder(model.path, weights, missing or (lambda node: None), trains_literals)
    with collector.off():
        return builder.module(model.graph, {})


class _Known(NamedTuple):
    """What a graph says of its values, by name: those stored, stated types, those read."""

    weights: Mapping[str, Weight]
    types: Mapping[str, ValueType]
    read: frozenset[str]


class _Builder:
    def __init__(self, path: str, weights: bool, missing: Missing, trains_literals: bool) -> None:
        self._path = path
        self._trains_literals = trains_literals
        self._weights = weights
        self._missing = missing
        self._tensors: dict[tuple[int, bool], Any] = {}

    def module(self, graph: Graph, outer: Mapping[str, Weight]) -> fx.GraphModule:
        """The graph as a module; values that it captures come after its own inputs."""
        tree, made = ModuleTree(), fx.Graph()
        hidden = {name for node in graph.nodes for name in node.outputs}
        hidden.update(value.name for value in graph.inputs)
        weights = {n: w for n, w in outer.items() if n not in hidden} | dict(graph.weights)
        values: dict[str, fx.Node] = {}
        captured = [name for name in graph.captured() if name not in weights]
        names = UniqueNames()
        for name in [*(v.name for v in graph.inputs), *captured]:
            values[name] = made.placeholder(names.of(identifier(name)))
        known = _Known(weights, graph.known_types(), graph.read())
        for node in graph.nodes:
            self._add(tree, made, node, values, known)
        outputs = [
            values[v.name] if v.name in values else self._attribute(tree, made, weights[v.name])
            for v in graph.outputs
        ]
        made.output(outputs[0] if len(outputs) == 1 else tuple(outputs))
        tree.root.graph = made  # compiles it
        return tree.root

    def _add(
        self,
        tree: ModuleTree,
        made: fx.Graph,
        node: Node,
        values: dict[str, fx.Node],
        known: _Known,
    ) -> None:
        weights = known.weights
        registered = _rule_of(node) or self._missing(node)
        if registered is None:
            raise ModelLoadError(
                f"{self._path}: node {node.label}: the operator has no rule in opset "
                f"{node.version}; give one with --rules FILE.py"
            )
        own = {p: weights[n] for p, n in enumerate(node.inputs) if n in weights}
        held = {p: self._tensor(w, p in registered.constants) for p, w in own.items()}
        captured = {name: body.captured() for name, body in node.bodies()}
        free = {n: tuple(c for c in names if c not in weights) for n, names in captured.items()}
        bodies = {name: (self.module(body, weights), free[name]) for name, body in node.bodies()}
        unread = frozenset(p for p, n in enumerate(node.outputs) if n not in known.read) or _NONE
        module = OnnxNode(Call(node, {}, own, known.types, unread), registered, held, bodies)
        path = tree.add(node.name, module)
        names = [n for p, n in enumerate(node.inputs) if n and p not in own]
        names += [n for names_ in free.values() for n in names_]
        absent = [n for n in names if n not in values]
        if absent:
            raise ModelLoadError(
                f"{self._path}: node {node.label} reads {shown(absent[0])}, "
                "which no node before it, no input and no initializer gives"
            )
        result = made.call_module(path, tuple(values[n] for n in names))
        _bind(made, node, result, values)

    def _attribute(self, tree: ModuleTree, made: fx.Graph, weight: Weight) -> fx.Node:
        """A weight that is an output of the graph."""
        return made.get_attr(tree.add_buffer(weight.name, self._tensor(weight, constant=True)))

    def _tensor(self, weight: Weight, constant: bool) -> Any:
        """A weight as a parameter or as a constant, the same one for each that asks.

        Exporters write equal weights once, such as the zeros of a bias and of a running mean:
        what is trained at one node and not at another is two tensors.
        """
        key = (id(weight), constant)
        if key not in self._tensors:
            self._tensors[key] = self._made(weight, constant)
        return self._tensors[key]

    def _made(self, weight: Weight, constant: bool) -> Any:
        if weight.element.dtype is None:
            return weight.read()
        trained = _is_weight(weight) and not constant
        trained = trained and (self._trains_literals or not weight.is_literal)
        most = _SMALL_INTEGERS if weight.element in _INTEGERS else _SMALL
        # A small one that nobody wants is read all the same: a damaged file is refused.
        array = weight.read() if self._weights or weight.numel <= most else None
        tensor = (
            torch.empty(weight.shape, dtype=weight.element.dtype, device="meta")
            if array is None or (trained and not self._weights)
            else as_tensor(array, weight.element)
        )
        return nn.Parameter(tensor) if trained else as_constant(tensor)


def _is_weight(weight: Weight) -> bool:
    """Whether it is of a kind that is trained: floats with a dimension."""
    return weight.element in _FLOATS and bool(weight.shape)


def as_tensor(array: Array, element: ElementType) -> Tensor:
    """An array as a tensor of the type's torch dtype, with memory of its own."""
    dtype = element.dtype
    assert dtype is not None  # strings are no tensors
    if array.dtype.kind in "biufc" and array.dtype.isbuiltin == 1:  # ml_dtypes' are 2
        return torch.tensor(np.ascontiguousarray(array), dtype=dtype).reshape(array.shape)
    if dtype.itemsize == array.dtype.itemsize and dtype.is_floating_point:
        raw = np.ascontiguousarray(array).view({1: np.uint8, 2: np.int16}[dtype.itemsize])
        return torch.tensor(raw).view(dtype).reshape(array.shape)
    return torch.tensor(array.astype(np.float32)).to(dtype).reshape(array.shape)


def _bind(made: fx.Graph, node: Node, result: fx.Node, values: dict[str, fx.Node]) -> None:
    """Give the outputs of a node their names."""
    if len(node.outputs) == 1:
        values[node.outputs[0]] = result
        return
    for position, name in enumerate(node.outputs):
        if name:
            values[name] = made.call_function(operator.getitem, (result, position))
