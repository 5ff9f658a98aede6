"""Which results of a compiled graph never reach memory, as far as inductor fuses.

Inductor makes one kernel of neighbouring pointwise operators and the reductions that read
them. Definitions, over the nodes of a graph in their order:

(1) A node is *fusible* if inductor generates its code: it has a lowering that is neither a
    call of torch's own kernel (``fallbacks``) nor one of a library or template kernel
    (``torch/_inductor/kernel``: matrix products, convolutions, attention).
(2) It is *inlined* if its lowering is a plain loop over its result (``Pointwise.create`` in
    torch/_inductor/lowering.py): operators tagged pointwise, and those of ``_LOOPS``.
(3) A *region* is a run of nodes without one that is not fusible.
(4) The result of an inlined node is *not materialised* if every node that reads it, or a view
    of it, is fusible and in its region, and it is no output of the graph.

That is the most that fusion can save. Inductor stops earlier: where a result is read often
(``realize_reads_threshold``) or loops do not match.
Source: torch/_inductor/ir.py (``TensorBox.mark_reuse``), lowering.py, scheduler.py (2.13).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

_aten = torch.ops.aten
_LOOPS = frozenset(
    {
        _aten.full.default,
        _aten.full_like.default,
        _aten.index.Tensor,
        _aten.embedding.default,
        _aten.gather.default,
        _aten.constant_pad_nd.default,
        _aten.cat.default,
        _aten.slice_scatter.default,
        _aten.select_scatter.default,
        _aten.flip.default,
        _aten.repeat.default,
        torch.ops.prims.iota.default,
    }
)


def unmaterialised(graph: fx.Graph) -> frozenset[fx.Node]:
    """The nodes of a compiled graph whose results fused kernels alone see."""
    regions = _regions(graph)
    return frozenset(
        node
        for node in graph.nodes
        if _is_inlined(node)
        and all(
            reader.op != "output" and is_fusible(reader) and regions[reader] == regions[node]
            for reader in _readers(node)
        )
    )


def _regions(graph: fx.Graph) -> dict[fx.Node, int]:
    """The number of each node's region."""
    number, regions = 0, {}
    for node in graph.nodes:
        if node.op == "call_function" and not is_fusible(node):
            number += 1
        regions[node] = number
    return regions


def _readers(node: fx.Node) -> Iterator[fx.Node]:
    """The nodes that read a node's result, directly or through views."""
    for user in node.users:
        if user.op != "output" and (_is_view(user) or user.target is operator.getitem):
            yield from _readers(user)
        else:
            yield user


def is_fusible(node: fx.Node) -> bool:
    """Whether inductor generates the code of a node (1)."""
    if node.op != "call_function" or node.target is operator.getitem:
        return node.op != "output"
    return _is_view(node) or _is_generated(node.target)


def _is_generated(target: Any) -> bool:
    from torch._inductor import lowering  # all of inductor: only where something is compiled

    lower = lowering.lowerings.get(target)
    if lower is None or target in lowering.fallbacks:
        return False
    while hasattr(lower, "__wrapped__"):
        lower = lower.__wrapped__
    return not lower.__module__.startswith("torch._inductor.kernel")


def _is_inlined(node: fx.Node) -> bool:
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    pointwise = torch.Tag.pointwise in node.target.tags or node.target in _LOOPS
    return pointwise and not node.target._schema.is_mutable and is_fusible(node)


def _is_view(node: fx.Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and target.is_view
