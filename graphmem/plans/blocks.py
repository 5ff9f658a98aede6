"""The blocks of a model: modules that it repeats under numbers, such as ``model.layers.3``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from graphmem.schedule import TOP_LEVEL, Module

_LEAST = 2


def blocks_of(modules: Iterable[Module]) -> tuple[str, ...]:
    """The paths of the outermost modules with a number for a name that have brothers like them.

    A brother is like a module if it has the same type: the layers of a transformer, the blocks
    of a ResNet's stages; not the items of a Sequential that are all different.
    """
    called = [m for m in modules if m.calls and m.path != TOP_LEVEL and _is_numbered(m.path)]
    counts = Counter((_parent(m.path), m.type) for m in called)
    alike = [m.path for m in called if counts[_parent(m.path), m.type] >= _LEAST]
    known = set(alike)
    return tuple(path for path in alike if not any(a in known for a in _above(path)))


def _is_numbered(path: str) -> bool:
    return path.rpartition(".")[2].isdecimal()


def _parent(path: str) -> str:
    return path.rpartition(".")[0]


def _above(path: str) -> list[str]:
    names = path.split(".")
    return [".".join(names[:end]) for end in range(1, len(names))]


def patterns(blocks: Iterable[str]) -> str:
    """The patterns of ``--checkpoint`` that match the blocks: ``model.layers.*``."""
    return ",".join(dict.fromkeys(f"{_parent(path)}.*".lstrip(".") for path in blocks))
