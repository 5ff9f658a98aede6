"""Changes of many modules as few lines: ``layers.0-31.mlp.up_proj``.

1. Modules are summed into the first components of their paths, as many as are asked for.
2. Places whose paths differ only in numbers are one group, if the same happened to them: all
   new, all gone, or all there before and after with more bytes at the peak, fewer, or as many,
   and with the same classes. What did not change at all is in no group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from graphmem.diffs.items import COLUMNS, Group, LayerChange, Status, sum_of

_MOST_RUNS = 4


def grouped(layers: Iterable[LayerChange], depth: int | None = None) -> tuple[Group, ...]:
    """The groups of what changed, the largest change at the peak first.

    Args:
        layers: all modules.
        depth: how many components of a path are told apart; None: all.
    """
    found: dict[object, list[Group]] = defaultdict(list)
    for place in _places(layers, depth):
        found[_kind(place)].append(place)
    return tuple(sorted(map(_merged, found.values()), key=_importance))


def overview(layers: Sequence[LayerChange], most: int) -> tuple[Group, ...]:
    """The groups at the largest depth that has at most ``most`` of them, else the outermost."""
    deepest = max((layer.module.count(".") for layer in layers), default=0) + 1
    for depth in range(deepest, 1, -1):
        groups = grouped(layers, depth)
        if len(groups) <= most:
            return groups
    return grouped(layers, 1)


def only_one_side(layers: Iterable[LayerChange], status: Status) -> tuple[Group, ...]:
    """What is new, or gone, each subtree as one place; the most bytes at the peak first."""
    every = list(layers)
    own = {layer.module: layer for layer in every if layer.status is status}
    others = {layer.module for layer in every} - own.keys()
    found: dict[str, list[LayerChange]] = defaultdict(list)
    for path, layer in own.items():
        found[_root(path, own, others)].append(layer)
    merged: dict[object, list[Group]] = defaultdict(list)
    for root, members in found.items():
        place = _place(root, members)
        merged[pattern_of(root), place.types].append(place)
    return tuple(sorted(map(_merged, merged.values()), key=_importance))


def _root(path: str, own: Collection[str], others: Collection[str]) -> str:
    """The outermost of ``own`` that a path is below, with none of the others in between."""
    root, above = path, path.rpartition(".")[0]
    while above and above not in others:
        root = above if above in own else root
        above = above.rpartition(".")[0]
    return root


def label_of(paths: Sequence[str]) -> str:
    """One name for paths that differ in numbers alone: ``h.0-11.mlp``."""
    columns = zip(*(path.split(".") for path in paths), strict=True)
    return ".".join(_component(list(dict.fromkeys(names))) for names in columns)


def pattern_of(path: str) -> tuple[str, ...]:
    """The components of a path, with a ``*`` for each number."""
    return tuple("*" if name.isdecimal() else name for name in path.split("."))


def concentrated(changes: Mapping[str, int], whole: int) -> tuple[tuple[str, int], ...]:
    """Where a change is: the innermost place that has half of it or more.

    Args:
        changes: for each module's path its own change; numbers in paths do not part places.
        whole: the change of all.

    Returns:
        The place and its part of the change. Where no place has half: the two outermost that
        have most, if they have half together, else nothing.
    """
    sums: dict[tuple[str, ...], int] = defaultdict(int)
    paths: dict[tuple[str, ...], dict[str, None]] = defaultdict(dict)
    for path, change in changes.items():
        names = path.split(".")
        for depth in range(1, len(names) + 1) if change else ():
            prefix = ".".join(names[:depth])
            sums[pattern_of(prefix)] += change
            paths[pattern_of(prefix)][prefix] = None
    sign = 1 if whole > 0 else -1
    along = {pattern: change * sign for pattern, change in sums.items() if change * sign > 0}
    enough = [pattern for pattern, change in along.items() if 2 * change >= abs(whole) > 0]
    if enough:
        found = [max(enough, key=lambda pattern: (len(pattern), along[pattern], pattern))]
    else:
        outer = [pattern for pattern in along if not pattern[1:]]
        found = sorted(outer, key=lambda pattern: (-along[pattern], pattern))[:2]
        if not 2 * sum(along[pattern] for pattern in found) >= abs(whole) > 0:
            return ()
    return tuple((label_of(list(paths[pattern])), sums[pattern]) for pattern in found)


def _places(layers: Iterable[LayerChange], depth: int | None) -> Iterator[Group]:
    """Each place with all of its modules, where any of them changed."""
    found: dict[str, list[LayerChange]] = defaultdict(list)
    for layer in layers:
        found[".".join(layer.module.split(".")[:depth])].append(layer)
    for path, members in found.items():
        if any(layer.is_changed for layer in members):
            yield _place(path, members)


def _place(path: str, members: Sequence[LayerChange]) -> Group:
    """A place with what is below it."""
    columns = [layer.columns for layer in members]
    return Group(
        label=path,
        modules=len(members),
        types=next((layer.types for layer in members if layer.module == path), (None, None)),
        status=_common([layer.status for layer in members]),
        columns={name: sum_of(own[name] for own in columns) for name in COLUMNS},
    )


def _common(statuses: Sequence[Status]) -> Status:
    return statuses[0] if len(set(statuses)) == 1 else Status.CHANGED


def _kind(place: Group) -> object:
    change = place.live.change
    grows = (change > 0) - (change < 0)
    status = place.status if place.status in (Status.NEW, Status.GONE) else None
    return pattern_of(place.label), status, grows, place.types


def _merged(places: Sequence[Group]) -> Group:
    return Group(
        label=label_of([place.label for place in places]),
        modules=sum(place.modules for place in places),
        types=places[0].types,
        status=_common([place.status for place in places]),
        columns={name: sum_of(place.columns[name] for place in places) for name in COLUMNS},
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
