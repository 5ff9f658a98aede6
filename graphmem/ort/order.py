"""The order in which nodes run.

ONNX Runtime walks back from the nodes that no other node reads, depth first; wherever several
are next, the one with the highest index goes first, and a node is placed after all that it
needs.

Source: ``GraphViewer::GraphViewer`` and ``Graph::ReverseDFSFrom`` in
onnxruntime/core/graph/graph_viewer.cc and graph.cc, ``NodeCompare``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Ordered(NamedTuple):
    """A node: its index in ONNX Runtime's graph, the names that it reads, and those it gives."""

    number: int
    reads: tuple[str, ...]
    gives: tuple[str, ...]


def execution_order(nodes: Sequence[Ordered]) -> list[int]:
    """The positions of nodes in ``nodes``, in the order in which they run."""
    made_by = {name: at for at, node in enumerate(nodes) for name in node.gives}
    needs = [
        sorted({made_by[n] for n in node.reads if n in made_by}, key=lambda at: nodes[at].number)
        for node in nodes
    ]
    read = {at for sources in needs for at in sources}
    leaves = sorted(set(range(len(nodes))) - read, key=lambda at: nodes[at].number)
    order: list[int] = []
    seen: set[int] = set()
    stack = [(at, False) for at in leaves]
    while stack:
        at, is_done = stack.pop()
        if is_done:
            order.append(at)
        elif at not in seen:
            seen.add(at)
            stack.append((at, True))
            stack += [(source, False) for source in needs[at] if source not in seen]
    return order
