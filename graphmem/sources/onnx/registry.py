"""Rules: what an ONNX operator is in torch, by domain, name and opset.

A rule is a function of a call and its inputs (tensors; None for one left out; lists for
sequences), and returns its output, or a tuple of its outputs. It holds from the opset that
it was registered ``since`` on, until a later one is registered.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from graphmem.errors import InvariantError, ModelLoadError
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import Node, TensorType, ValueType, Weight

Rule = Callable[..., Any]
Body = Callable[..., tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Call:
    """A node as a rule sees it; ``bodies`` are callable, outer values are bound already.

    ``weights`` are its inputs that are weights, by position; ``types`` are those that the file
    states, by the name of the value; ``unread`` are the positions of outputs that nothing
    reads; ``training`` is the mode of its module.
    """

    node: Node
    bodies: Mapping[str, Body] = field(default_factory=dict)
    weights: Mapping[int, Weight] = field(default_factory=dict)
    types: Mapping[str, ValueType] = field(default_factory=dict)
    unread: frozenset[int] = frozenset()
    training: bool = False

    @property
    def version(self) -> int:
        """The opset of its domain."""
        return self.node.version

    @property
    def outputs(self) -> int:
        """How many outputs it has, left-out ones before the last included."""
        return len(self.node.outputs)

    def has(self, name: str) -> bool:
        """Whether an attribute is given."""
        return name in self.node.attributes

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer attribute.

        Raises:
            ModelLoadError: it is not given and has no default, also in the methods below.
        """
        return cast(int, self._get(name, default))

    def number(self, name: str, default: float | None = None) -> float:
        """A floating-point attribute."""
        return cast(float, self._get(name, default))

    def text(self, name: str, default: str | None = None) -> str:
        """A string attribute."""
        return cast(str, self._get(name, default))

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """A list of integers."""
        return cast("tuple[int, ...]", self._get(name, default))

    def numbers(self, name: str, default: tuple[float, ...] | None = None) -> tuple[float, ...]:
        """A list of floats."""
        return cast("tuple[float, ...]", self._get(name, default))

    def tensor(self, name: str) -> Weight:
        """A tensor attribute."""
        return cast(Weight, self._get(name, None))

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute of any kind, or the default."""
        return self.node.attributes.get(name, default)

    def body(self, name: str) -> Body:
        """A graph attribute, callable with its inputs; gives a tuple of its outputs."""
        return self.bodies[name]

    def scalar(self, position: int) -> Any:
        """The number that an input of no dimensions is, if it is a weight; else None.

        With it a rule can call torch with a Python number, as a user of torch would.
        """
        weight = self.weights.get(position)
        if weight is None or weight.shape or weight.element.dtype is None:
            return None
        array = weight.read()
        return None if array is None else array.item()

    def element(self, position: int) -> ElementType | None:
        """The element type of an input, where the file states it.

        A tensor of torch does not tell those of less than a byte.
        """
        if position in self.weights:
            return self.weights[position].element
        known = self.types.get(self.node.inputs[position])
        return known.element if isinstance(known, TensorType) else None

    def _get(self, name: str, default: Any) -> Any:
        value = self.node.attributes.get(name, default)
        if value is None:
            raise ModelLoadError(f"node {self.node.name} ({self.node.kind}): {name} is missing")
        return value


@dataclass(frozen=True, slots=True)
class Registered:
    """A rule, and the positions of inputs that are no parameters although they are floats."""

    function: Rule
    since: int
    constants: frozenset[int]


_RULES: dict[tuple[str, str], list[Registered]] = defaultdict(list)


def rule(
    *ops: str, domain: str = "", since: int = 1, constants: tuple[int, ...] = ()
) -> Callable[[Rule], Rule]:
    """Register a rule for operators of a domain.

    Args:
        constants: positions of inputs that are not trained where they are weights, such as
            the running statistics of a batch norm.

    Raises:
        InvariantError: one of them has a rule since the same opset.
    """

    def register(function: Rule) -> Rule:
        for op in ops:
            known = _RULES[domain, op]
            if any(r.since == since for r in known):
                raise InvariantError(f"two rules for {domain or 'ai.onnx'}.{op} since {since}")
            bisect.insort(
                known, Registered(function, since, frozenset(constants)), key=lambda r: r.since
            )
        return function

    return register


def find_rule(node: Node) -> Registered | None:
    """The rule of a node, if there is one."""
    known = [r for r in _RULES.get((node.domain, node.op), ()) if r.since <= node.version]
    return known[-1] if known else None


def rules() -> Mapping[tuple[str, str], list[Registered]]:
    """Every rule, for the documentation."""
    return dict(_RULES)
