"""Which rows of a finished report are shown: shared by every renderer.

Collapsing layers to a depth conserves bytes. A module path of more than ``depth``
components is summed into the row of its first ``depth`` components:

1. bytes that are owned add up: parameters, saved, gradients, optimizer, live at the peak;
2. bytes of a moment do not, and take the largest: output, forward peak, backward peak;
3. type and calls are those of the prefix itself where it has a row. Where it has none
   they are not known: the type then says how many modules the row stands for, and the
   calls are 0.

``(top level)`` is one component, and a row of its own at every depth.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from graphmem.errors import UsageError
from graphmem.report import BREAKDOWN, Holder, Layer, Report

AUTOMATIC_ROWS = 25
"""The rows that a table of layers may have where no depth is asked for: one screen."""


@dataclass(frozen=True, slots=True)
class LayerRows:
    """The rows of the table of layers.

    ``total`` is their sum; ``depth`` what they are collapsed to, ``full_depth`` the depth
    that collapses nothing, ``full_count`` the rows it would give.
    """

    rows: tuple[Layer, ...]
    total: Layer
    depth: int
    full_depth: int
    full_count: int


@dataclass(frozen=True, slots=True)
class BreakdownRows:
    """The categories that hold bytes at the peak, those that hold none, and the sum."""

    rows: tuple[tuple[str, int], ...]
    empty: tuple[str, ...]
    total: int


@dataclass(frozen=True, slots=True)
class HolderRows:
    """The largest holders, the bytes of everything else, and the sum of both."""

    rows: tuple[Holder, ...]
    rest: int
    total: int


def layer_rows(report: Report, depth: int | None) -> LayerRows:
    """The layers of a report, collapsed to ``depth``, or to a screenful if it is None.

    Raises:
        UsageError: a depth below 1.
    """
    if depth is not None and depth < 1:
        raise UsageError(f"--depth: {depth} is below 1, which shows the outermost modules")
    full = max((depth_of(layer.module) for layer in report.layers), default=1)
    chosen = automatic_depth(report.layers) if depth is None else min(depth, full)
    rows = collapse(report.layers, chosen)
    total = replace(_sum("total", rows), type="")
    return LayerRows(rows, total, chosen, full, len(report.layers))


def breakdown_rows(report: Report) -> BreakdownRows:
    """The breakdown in its order, without the categories of zero bytes."""
    sizes = [(name, report.breakdown.get(name, 0)) for name in BREAKDOWN]
    rows = tuple((name, size) for name, size in sizes if size)
    empty = tuple(name for name, size in sizes if not size)
    return BreakdownRows(rows, empty, sum(size for _, size in rows))


def holder_rows(report: Report, count: int) -> HolderRows:
    """The ``count`` largest holders; the rest is what the peak holds besides them.

    Raises:
        UsageError: a count below 0.
    """
    if count < 0:
        raise UsageError(f"--holders: {count} is below 0, which shows none")
    largest = sorted(report.holders, key=lambda holder: -holder.bytes)[:count]
    total = report.peak.allocated_bytes
    return HolderRows(tuple(largest), total - sum(h.bytes for h in largest), total)


def collapse(layers: Sequence[Layer], depth: int) -> tuple[Layer, ...]:
    """The layers with deeper modules summed into their prefix, in order of appearance."""
    groups: dict[str, list[Layer]] = {}
    for layer in layers:
        groups.setdefault(prefix_of(layer.module, depth), []).append(layer)
    return tuple(
        members[0] if len(members) == 1 and members[0].module == prefix else _sum(prefix, members)
        for prefix, members in groups.items()
    )


def automatic_depth(layers: Sequence[Layer], most_rows: int = AUTOMATIC_ROWS) -> int:
    """The largest depth that leaves at most ``most_rows`` rows, but at least 1."""
    deepest = max((depth_of(layer.module) for layer in layers), default=1)
    for depth in range(deepest, 1, -1):
        if len({prefix_of(layer.module, depth) for layer in layers}) <= most_rows:
            return depth
    return 1


def depth_of(module: str) -> int:
    """How many components a module path has; ``(top level)`` has one."""
    return module.count(".") + 1


def prefix_of(module: str, depth: int) -> str:
    """The first ``depth`` components of a module path."""
    return ".".join(module.split(".")[:depth])


def _sum(module: str, members: Sequence[Layer]) -> Layer:
    own = next((layer for layer in members if layer.module == module), None)
    number = f"{len(members)} module{'' if len(members) == 1 else 's'}"
    return Layer(
        module=module,
        type=number if own is None else own.type,
        calls=0 if own is None else own.calls,
        parameters=sum(layer.parameters for layer in members),
        parameter_bytes=sum(layer.parameter_bytes for layer in members),
        output_bytes=max((layer.output_bytes for layer in members), default=0),
        saved_bytes=sum(layer.saved_bytes for layer in members),
        gradient_bytes=sum(layer.gradient_bytes for layer in members),
        optimizer_bytes=sum(layer.optimizer_bytes for layer in members),
        forward_peak_bytes=_largest(layer.forward_peak_bytes for layer in members),
        backward_peak_bytes=_largest(layer.backward_peak_bytes for layer in members),
        live_at_peak_bytes=sum(layer.live_at_peak_bytes for layer in members),
    )


def _largest(sizes: Iterable[int | None]) -> int | None:
    return max((size for size in sizes if size is not None), default=None)
