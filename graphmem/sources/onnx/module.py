"""An ONNX model as a ``torch.fx.GraphModule`` that computes and trains.

Each ONNX node is a submodule, so that reports speak of the nodes by their names: node
``/layer1/conv/Conv`` is module ``layer1.conv.Conv``, of type ``Conv``. Its weights are its
parameters; of several nodes that share one, each has the same parameter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from graphmem.errors import ModelLoadError
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import Array, Graph, Model, Node, ValueType, Weight
from graphmem.sources.onnx.registry import Body, Call, Registered, find_rule

_SMALL = 1 << 12
"""Elements of a weight up to which its values are kept where weights are left out."""

_INTEGERS = frozenset(
    {
        *(ElementType.INT64, ElementType.INT32, ElementType.BOOL, ElementType.INT16),
        *(ElementType.UINT8, ElementType.INT8, ElementType.UINT16, ElementType.UINT32),
    }
)
_FLOATS = frozenset(
    {ElementType.FLOAT, ElementType.FLOAT16, ElementType.BFLOAT16, ElementType.DOUBLE}
)

Missing = Callable[[Node], Registered | None]
"""What to run for a node without a rule."""


class OnnxNode(nn.Module):
    """One node. ``forward`` takes the inputs that are not its weights, and captured values.

    Args:
        call: the node.
        registered: its rule.
        weights: weights by the position of the input that they are.
        bodies: its graphs, each with the names that it captures.
    """

    def __init__(
        self,
        call: Call,
        registered: Registered,
        weights: Mapping[int, Tensor | Any],
        bodies: Mapping[str, tuple[fx.GraphModule, tuple[str, ...]]],
    ) -> None:
        super().__init__()
        self._call = call
        self._rule = registered.function
        self._places: dict[int, str] = {}
        self._plain = {p: w for p, w in weights.items() if not isinstance(w, Tensor)}
        for position, tensor in weights.items():
            if isinstance(tensor, Tensor):
                self._places[position] = self._hold(position, tensor)
        self._captured: dict[str, tuple[str, ...]] = {}
        for name, (body, captured) in bodies.items():
            self.add_module(name, body)
            self._captured[name] = captured

    def _get_name(self) -> str:
        return self._call.node.kind

    def _hold(self, position: int, tensor: Tensor) -> str:
        name = _identifier(self._call.node.inputs[position].rpartition(".")[2])
        if name in self.__dict__ or hasattr(type(self), name) or name in self._places.values():
            name = f"{name}_{position}"
        if isinstance(tensor, nn.Parameter):
            self.register_parameter(name, tensor)
        else:
            self.register_buffer(name, tensor)
        return name

    def forward(self, *given: Any) -> Any:
        """Run the rule: its output, or a tuple of its outputs."""
        node = self._call.node
        rest = iter(given)
        inputs = [self._input(p, name, rest) for p, name in enumerate(node.inputs)]
        while inputs and inputs[-1] is None:
            inputs.pop()
        call = self._call
        if self._captured:
            bound = {name: self._bound(name, rest) for name in self._captured}
            call = replace(call, bodies=bound)
        return self._rule(call, *inputs)

    def _input(self, position: int, name: str, rest: Any) -> Any:
        if not name:
            return None
        if position in self._places:
            return getattr(self, self._places[position])
        return self._plain[position] if position in self._plain else next(rest)

    def _bound(self, name: str, rest: Any) -> Body:
        outside = [next(rest) for _ in self._captured[name]]
        body = getattr(self, name)

        def run(*inputs: Any) -> tuple[Any, ...]:
            result = body(*inputs, *outside)
            return result if isinstance(result, tuple) else (result,)

        return run


def build_module(model: Model, *, weights: bool, missing: Missing | None = None) -> fx.GraphModule:
    """A model as a module; its forward takes the graph's inputs, by position or name.

    Args:
        weights: give parameters their values; otherwise large ones are on the meta device.
        missing: gives a rule for operators that have none.

    Raises:
        ModelLoadError: an operator has no rule, or an input is defined nowhere.
    """
    return _Builder(model.path, weights, missing or (lambda node: None)).module(model.graph, {})


class _Builder:
    def __init__(self, path: str, weights: bool, missing: Missing) -> None:
        self._path = path
        self._weights = weights
        self._missing = missing
        self._tensors: dict[int, Any] = {}

    def module(self, graph: Graph, outer: Mapping[str, Weight]) -> fx.GraphModule:
        """The graph as a module; values that it captures come after its own inputs."""
        root, made = nn.Module(), fx.Graph()
        weights = {**outer, **graph.weights}
        values: dict[str, fx.Node] = {}
        captured = [name for name in graph.captured() if name not in weights]
        for name in [*(v.name for v in graph.inputs), *captured]:
            values[name] = made.placeholder(_identifier(name))
        types = graph.known_types()
        for node in graph.nodes:
            self._add(root, made, node, values, weights, types)
        outputs = [
            values[v.name] if v.name in values else self._attribute(root, made, weights[v.name])
            for v in graph.outputs
        ]
        made.output(outputs[0] if len(outputs) == 1 else tuple(outputs))
        return fx.GraphModule(root, made)

    def _add(
        self,
        root: nn.Module,
        made: fx.Graph,
        node: Node,
        values: dict[str, fx.Node],
        weights: Mapping[str, Weight],
        types: Mapping[str, ValueType],
    ) -> None:
        registered = find_rule(node) or self._missing(node)
        if registered is None:
            raise ModelLoadError(
                f"{self._path}: node {node.name}: operator {node.kind} of opset {node.version} "
                "has no rule; give one with --rules FILE.py"
            )
        own = {p: weights[n] for p, n in enumerate(node.inputs) if n in weights}
        held = {p: self._tensor(w, p in registered.constants) for p, w in own.items()}
        captured = {name: body.captured() for name, body in node.bodies()}
        free = {n: tuple(c for c in names if c not in weights) for n, names in captured.items()}
        bodies = {name: (self.module(body, weights), free[name]) for name, body in node.bodies()}
        module = OnnxNode(Call(node, {}, own, types), registered, held, bodies)
        path = _module_path(node.name, root)
        _attach(root, path, module)
        names = [n for p, n in enumerate(node.inputs) if n and p not in own]
        names += [n for names_ in free.values() for n in names_]
        absent = [n for n in names if n not in values]
        if absent:
            raise ModelLoadError(
                f"{self._path}: node {node.name} ({node.kind}) reads {absent[0]!r}, "
                "which no node before it, no input and no initializer gives"
            )
        result = made.call_module(path, tuple(values[n] for n in names))
        _bind(made, node, result, values)

    def _attribute(self, root: nn.Module, made: fx.Graph, weight: Weight) -> fx.Node:
        """A weight that is an output of the graph."""
        name = _identifier(weight.name)
        tensor = self._tensor(weight, constant=True)
        root.register_buffer(name, tensor)
        return made.get_attr(name)

    def _tensor(self, weight: Weight, constant: bool) -> Any:
        """A weight as a parameter or buffer, the same one for each that asks."""
        found = self._tensors.get(id(weight))
        if found is None:
            found = self._tensors[id(weight)] = self._made(weight, constant)
        return found

    def _made(self, weight: Weight, constant: bool) -> Any:
        if weight.element.dtype is None:
            return weight.read()
        trained = weight.element in _FLOATS and weight.shape and not constant
        wanted = self._weights or weight.numel <= _SMALL or weight.element in _INTEGERS
        array = weight.read() if wanted else None
        tensor = (
            torch.empty(weight.shape, dtype=weight.element.dtype, device="meta")
            if array is None
            else as_tensor(array, weight.element)
        )
        return nn.Parameter(tensor) if trained else tensor


def as_tensor(array: Array, element: ElementType) -> Tensor:
    """An array as a tensor of the type's torch dtype, with memory of its own."""
    dtype = element.dtype
    assert dtype is not None  # strings are no tensors
    if array.dtype.kind in "biufc" and array.dtype.isbuiltin:
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
    import operator

    for position, name in enumerate(node.outputs):
        if name:
            values[name] = made.call_function(operator.getitem, (result, position))


def _identifier(name: str) -> str:
    """A name that Python takes: letters, digits and underscores."""
    made = re.sub(r"\W", "_", name).strip("_") or "value"
    return f"_{made}" if made[0].isdigit() else made


def _module_path(name: str, root: nn.Module) -> str:
    """``/layer1/conv/Conv`` as ``layer1.conv.Conv``, not taken yet."""
    parts = [_identifier(part) for part in re.split(r"[/.]", name) if part] or ["node"]
    path, count = ".".join(parts), 1
    while _exists(root, path):
        count += 1
        path = f"{'.'.join(parts)}_{count}"
    return path


def _exists(root: nn.Module, path: str) -> bool:
    module: Any = root
    for part in path.split("."):
        if part not in module._modules:
            return hasattr(module, part)
        module = module._modules[part]
    return True


def _attach(root: nn.Module, path: str, module: nn.Module) -> None:
    """Add a submodule, and the containers that its path goes through."""
    *containers, last = path.split(".")
    at = root
    for name in containers:
        if name not in at._modules:
            at.add_module(name, nn.Module())
        inner = at._modules[name]
        assert inner is not None
        at = inner
    at.add_module(last, module)


def names_of(values: Iterable[Any]) -> list[str]:
    """The argument names of a module's forward, for values of a graph."""
    return [_identifier(value.name) for value in values]
