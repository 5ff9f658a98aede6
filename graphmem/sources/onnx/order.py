"""The nodes of a graph in an order in which they can run.

ONNX wants a graph's nodes sorted, each after those that it reads, and each value to be given
once. Files that are not sorted are read all the same: their nodes keep their order as far as
possible. A cycle and a value that is given twice are refused.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from graphmem.errors import ModelLoadError, shown
from graphmem.sources.onnx.model import Node


def in_order(nodes: Sequence[Node], given: Iterable[str], path: str) -> tuple[Node, ...]:
    """The nodes, sorted.

    Args:
        given: the names of the graph's inputs and weights.
        path: the model's file, for messages.

    Raises:
        ModelLoadError: two nodes give one value, or nodes wait for each other.
    """
    makers = _makers(nodes, set(given), path)
    reads = [[makers[name] for name in _read(node) if name in makers] for node in nodes]
    if all(maker < index for index, before in enumerate(reads) for maker in before):
        return tuple(nodes)
    return tuple(nodes[index] for index in _sorted(nodes, reads, path))


def _makers(nodes: Sequence[Node], given: set[str], path: str) -> dict[str, int]:
    """The node that gives each value."""
    makers: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            if name in given:
                raise ModelLoadError(
                    f"{path}: node {node.label} gives {shown(name)}, "
                    "which is an input or initializer already"
                )
            if name in makers:
                raise ModelLoadError(
                    f"{path}: nodes {nodes[makers[name]].label} and {node.label} both give "
                    f"{shown(name)}; each value must be given once"
                )
            makers[name] = index
    return makers


def _read(node: Node) -> Iterable[str]:
    yield from node.inputs
    for _, body in node.bodies():
        yield from body.captured()


def _sorted(nodes: Sequence[Node], reads: list[list[int]], path: str) -> list[int]:
    """Kahn's algorithm; of several that can run, the first in the file does."""
    waiting = [len(set(before)) for before in reads]
    readers: list[list[int]] = [[] for _ in nodes]
    for index, before in enumerate(reads):
        for maker in set(before):
            readers[maker].append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for index in readers[order[-1]]:
            waiting[index] -= 1
            if not waiting[index]:
                heapq.heappush(ready, index)
    if len(order) < len(nodes):
        cycle = _cycle(reads, set(range(len(nodes))) - set(order))
        raise ModelLoadError(
            f"{path}: node {nodes[cycle[0]].label} is in a cycle: it reads what node "
            f"{nodes[cycle[1 % len(cycle)]].label} gives, which waits for it"
        )
    return order


def _cycle(reads: list[list[int]], stuck: set[int]) -> list[int]:
    """Nodes each of which reads what the next one gives, and the last what the first does.

    A stuck node reads another stuck one: walking from reader to maker ends in a cycle.
    """
    at = min(stuck)
    seen: dict[int, int] = {}
    walk: list[int] = []
    while at not in seen:
        seen[at] = len(walk)
        walk.append(at)
        at = next(maker for maker in reads[at] if maker in stuck)
    return walk[seen[at] :]
