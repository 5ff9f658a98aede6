"""Small graphs: one line a node, ``d = Add(b, c)``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from graphmem.ort import Execution, Graph, Node, Value

ALIASES = {"Reshape": ((0, 0),)}
IN_PLACE = {"Relu": ((0, 0),)}
_LINE = re.compile(r"\s*([\w, ]+) = (\w+)\(([\w, ]*)\)\s*")


def graph(
    text: str,
    inputs: str,
    outputs: str,
    dims: Mapping[str, tuple[int | str, ...] | None] | None = None,
    element_bytes: Mapping[str, int | None] | None = None,
) -> Graph:
    """The graph of some lines; values have 100 elements of 4 bytes if nothing else is said."""
    dims, element_bytes = dims or {}, element_bytes or {}
    nodes = []
    for line in text.strip().splitlines():
        found = _LINE.fullmatch(line)
        assert found is not None, line
        made, op, read = found.groups()
        nodes.append(
            Node(
                made, op, _names(read), _names(made), (), ALIASES.get(op, ()), IN_PLACE.get(op, ())
            )
        )
    names = {n for node in nodes for n in (*node.inputs, *node.outputs)}
    values = {n: Value(n, dims.get(n, (100,)), element_bytes.get(n, 4)) for n in names}
    return Graph(tuple(nodes), _names(inputs), _names(outputs), values)


def execution(made: Graph, nbytes: Mapping[str, int] | int = 400) -> Execution:
    """One run with the sizes of all outputs, or each its own."""
    names = [n for node in made.nodes for n in node.outputs]
    if isinstance(nbytes, int):
        return Execution(made, dict.fromkeys(names, nbytes))
    return Execution(made, {n: nbytes[n] for n in names})


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
