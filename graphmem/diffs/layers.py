"""The modules of two reports before and after, and what was renamed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from graphmem.diffs.groups import label_of, pattern_of
from graphmem.diffs.items import LayerChange, Rename, Status
from graphmem.diffs.matching import Matched, match
from graphmem.report import Layer


def layer_changes(base: tuple[Layer, ...], head: tuple[Layer, ...]) -> tuple[LayerChange, ...]:
    """Each module of both reports; those that are gone stand at the end."""
    return tuple(map(_change, match(base, head)))


def renames(layers: Iterable[LayerChange]) -> tuple[Rename, ...]:
    """What is another name now, with the end that paths have in common left off.

    ``layers.3.fc`` that is ``blocks.3.fc`` counts to ``layers``, now ``blocks``. What differs
    in numbers alone, those the same before and after, is told together.
    """
    found: dict[tuple[object, bool], list[tuple[str, str]]] = defaultdict(list)
    for layer in layers:
        if layer.status in (Status.RENAMED, Status.MOVED):
            assert layer.before is not None
            assert layer.after is not None
            parts = _without_common_end(layer.before.module, layer.after.module)
            found[_kind(*parts), layer.status is Status.MOVED].append(parts)
    made = (_rename(pairs, moved) for (_, moved), pairs in found.items())
    return tuple(sorted(made, key=lambda rename: -rename.modules))


def _kind(before: str, after: str) -> tuple[object, ...]:
    """The same for paths that differ in numbers; other numbers after are another kind."""
    if _numbers(before) != _numbers(after):
        return before, after
    return pattern_of(before), pattern_of(after)


def _numbers(path: str) -> list[str]:
    return [name for name in path.split(".") if name.isdecimal()]


def _rename(pairs: Sequence[tuple[str, str]], moved: bool) -> Rename:
    before, after = (label_of(list(dict.fromkeys(side))) for side in zip(*pairs, strict=True))
    return Rename(before, after, len(pairs), moved)


def _change(pair: Matched) -> LayerChange:
    before, after = pair.before, pair.after
    if before is None:
        return LayerChange(None, after, Status.NEW)
    if after is None:
        return LayerChange(before, None, Status.GONE)
    if before.module != after.module:
        return LayerChange(before, after, Status.MOVED if pair.moved else Status.RENAMED)
    same = LayerChange(before, after, Status.UNCHANGED)
    return LayerChange(before, after, Status.CHANGED) if same.is_changed else same


def _without_common_end(before: str, after: str) -> tuple[str, str]:
    first, second = before.split("."), after.split(".")
    while first and second and first[-1] == second[-1]:
        first.pop()
        second.pop()
    return ".".join(first), ".".join(second)
