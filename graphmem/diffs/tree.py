"""The modules of a report as a tree, by the components of their paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from graphmem.report import Layer

TOP = "(top level)"
"""The row of what belongs to no module below the model itself: the root of the tree."""


@dataclass(eq=False, slots=True)
class Node:
    """A module; ``layer`` is its row, None where only modules below it have one.

    ``alike`` is the same for subtrees whose modules have the same names, types and parameter
    counts, below a root of any name; ``shaped`` for those that may differ in parameters.
    """

    path: str
    name: str
    layer: Layer | None = None
    children: dict[str, Node] = field(default_factory=dict)
    alike: int = 0
    shaped: int = 0
    parameters: int = 0

    @property
    def type(self) -> str:
        """The name of its class, empty where it is not known."""
        return "" if self.layer is None else self.layer.type

    def below(self) -> Iterator[Node]:
        """This node and all below it, parents first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children.values()))


class Forest:
    """Trees whose subtrees are compared: equal ones get the same numbers."""

    def __init__(self) -> None:
        self._alike: dict[object, int] = {}
        self._shaped: dict[object, int] = {}

    def plant(self, layers: tuple[Layer, ...]) -> Node:
        """The tree of a report's rows."""
        root = Node("", TOP)
        for layer in layers:
            node = root if layer.module == TOP else _at(root, layer.module)
            node.layer = layer
        for node in reversed(list(root.below())):
            self._sign(node)
        return root

    def _sign(self, node: Node) -> None:
        """Number a subtree; those below it have theirs."""
        own = 0 if node.layer is None else node.layer.parameters
        children = node.children.values()
        node.parameters = own + sum(child.parameters for child in children)
        alike = (node.type, own, tuple((child.name, child.alike) for child in children))
        shaped = (node.type, tuple((child.name, child.shaped) for child in children))
        node.alike = self._alike.setdefault(alike, len(self._alike))
        node.shaped = self._shaped.setdefault(shaped, len(self._shaped))


def _at(root: Node, path: str) -> Node:
    node = root
    for name in path.split("."):
        if name not in node.children:
            below = f"{node.path}.{name}" if node.path else name
            node.children[name] = Node(below, name)
        node = node.children[name]
    return node
