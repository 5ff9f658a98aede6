"""Changes of many modules as few lines: ``layers.0-31.mlp.up_proj``.

Modules whose paths differ only in numbers are one group, if the same happened to them: all
new, all gone, or all there before and after with more bytes at the peak, fewer, or as many,
and with the same classes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from graphmem.diffs.items import COLUMNS, Group, LayerChange, Status, sum_of

_MOST_RUNS = 4


def grouped(layers: Iterable[LayerChange]) -> tuple[Group, ...]:
    """The groups of what changed, the largest change first; unchanged modules are left out."""
    found: dict[object, list[LayerChange]] = defaultdict(list)
    for layer in layers:
        if layer.is_changed:
            found[_kind(layer)].append(layer)
    return tuple(sorted(map(_group, found.values()), key=_importance))


def label_of(paths: Sequence[str]) -> str:
    """One name for paths that differ in numbers alone: ``h.0-11.mlp``."""
    columns = zip(*(path.split(".") for path in paths), strict=True)
    return ".".join(_component(list(dict.fromkeys(names))) for names in columns)


def pattern_of(path: str) -> tuple[str, ...]:
    """The components of a path, with a ``*`` for each number."""
    return tuple("*" if name.isdecimal() else name for name in path.split("."))


def concentrated(changes: Mapping[str, int], whole: int) -> tuple[str, int] | None:
    """The innermost place that has half of a change or more, and its part of it.

    Args:
        changes: for each module's path its own change; numbers in paths do not part places.
        whole: the change of all.

    Returns:
        None where that is nothing more special than the whole model.
    """
    sums: dict[tuple[str, ...], int] = defaultdict(int)
    paths: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path, change in changes.items():
        names = path.split(".")
        for depth in range(1, len(names) + 1):
            pattern = pattern_of(".".join(names[:depth]))
            sums[pattern] += change
            if change:
                paths[pattern].append(".".join(names[:depth]))
    sign = 1 if whole > 0 else -1
    enough = [p for p, change in sums.items() if 2 * change * sign >= abs(whole) > 0]
    if not enough:
        return None
    found = max(enough, key=lambda pattern: (len(pattern), sums[pattern] * sign, pattern))
    return label_of(list(dict.fromkeys(paths[found]))), sums[found]


def _kind(layer: LayerChange) -> object:
    change = layer.live.change
    grows = (change > 0) - (change < 0)
    status = layer.status if layer.status in (Status.NEW, Status.GONE) else None
    return pattern_of(layer.module), status, grows, layer.types


def _group(layers: Sequence[LayerChange]) -> Group:
    statuses = {layer.status for layer in layers}
    return Group(
        label=label_of([layer.module for layer in layers]),
        modules=len(layers),
        types=layers[0].types,
        status=statuses.pop() if len(statuses) == 1 else Status.CHANGED,
        columns={name: sum_of(layer.columns[name] for layer in layers) for name in COLUMNS},
    )


def _importance(group: Group) -> tuple[int, int, str]:
    changes = [abs(change.change) for change in group.columns.values()]
    return -abs(group.live.change), -sum(changes), group.label


def _component(names: list[str]) -> str:
    """``0-11`` of eleven numbers, ``0-3,5`` where one is missing; a name as it is."""
    if len(names) == 1:
        return names[0]
    runs: list[list[int]] = []
    for number in sorted(map(int, names)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts = [f"{low}" if low == high else f"{low}-{high}" for low, high in runs]
    if len(texts) > _MOST_RUNS:
        return f"{runs[0][0]}…{runs[-1][1]}"
    return ",".join(texts)
