"""Tensors that one side holds at its peak and the other does not.

A tensor is known by its maker: category, operator, dtype, and the path of its module without
its numbers (that of the head, where the module was renamed). Shapes are left out: they change
with the batch; and so are the operators of what belongs to parameters, which are the same
gradients and states whatever made them. Reports list their largest tensors only. So one that
the other side does not list is said to have come or gone where that is sure:

1. the other side lists all its tensors, or does not have the module;
2. or it is larger than the smallest that is listed there, and the module's outputs are as
   large in both, so that its like there could only be as large.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from graphmem.diffs.groups import label_of, pattern_of
from graphmem.diffs.items import HolderGroup, LayerChange
from graphmem.report import Holder, Report

_PER_PARAMETER = ("parameters", "buffers", "gradients", "optimizer_states")

Maker = tuple[str, str | None, str, tuple[str, ...]]


def came_and_went(
    base: Report, head: Report, layers: Iterable[LayerChange]
) -> tuple[tuple[HolderGroup, ...], tuple[HolderGroup, ...]]:
    """What only the head holds, and what only the base does: by maker, the most bytes first."""
    pairs = [(change.before, change.after, change) for change in layers]
    before = {layer.module: change for layer, _, change in pairs if layer is not None}
    after = {layer.module: change for _, layer, change in pairs if layer is not None}
    names = {path: change.module for path, change in before.items()}
    return _only_in(head, base, after, names), _only_in(base, head, before, names)


def _only_in(
    one: Report, other: Report, rows: Mapping[str, LayerChange], names: Mapping[str, str]
) -> tuple[HolderGroup, ...]:
    """Tensors of ``one``, whose modules are ``rows``; ``names`` are paths in the head."""
    theirs = {_maker(holder, names) for holder in other.holders}
    least = _least_listed(other)
    found: dict[Maker, list[Holder]] = defaultdict(list)
    for holder in one.holders:
        maker = _maker(holder, names)
        if maker not in theirs and _is_sure(holder, rows.get(holder.module), least):
            found[maker].append(holder)
    return tuple(sorted(map(_group, found.values()), key=lambda g: (-g.bytes, g.modules)))


def _maker(holder: Holder, names: Mapping[str, str]) -> Maker:
    module = names.get(holder.module, holder.module)
    op = None if holder.category in _PER_PARAMETER else holder.op
    return holder.category, op, holder.dtype, pattern_of(module)


def _is_sure(holder: Holder, row: LayerChange | None, least: int) -> bool:
    if least == 0 or row is None or row.before is None or row.after is None:
        return True
    return holder.bytes > least and row.columns["output_bytes"].change == 0


def _least_listed(report: Report) -> int:
    """The smallest tensor in the list; 0 where the list has all."""
    listed = sum(holder.bytes for holder in report.holders)
    tensors = report.peak.allocated_bytes - report.breakdown.get("workspaces", 0)
    return min((h.bytes for h in report.holders), default=0) if listed < tensors else 0


def _group(holders: list[Holder]) -> HolderGroup:
    return HolderGroup(
        bytes=sum(holder.bytes for holder in holders),
        tensors=len(holders),
        modules=label_of(list(dict.fromkeys(holder.module for holder in holders))),
        example=max(holders, key=lambda holder: holder.bytes),
    )
