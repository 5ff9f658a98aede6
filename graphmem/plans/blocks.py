"""The blocks of a model: modules that it repeats under numbers, such as ``model.layers.3``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from graphmem.schedule import TOP_LEVEL, Module, Storage

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


@dataclass(frozen=True)
class Within:
    """Whether a storage was made in a block."""

    blocks: tuple[str, ...]

    def __call__(self, storage: Storage) -> bool:
        """Of a storage, by the module that holds it."""
        return block_of(storage.module, frozenset(self.blocks)) is not None


@cache
def block_of(module: str, blocks: frozenset[str]) -> str | None:
    """The block that a module is, or is in."""
    return next((path for path in (*_above(module), module) if path in blocks), None)


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


def compact(blocks: Iterable[str]) -> str:
    """The patterns that match some blocks and no others: ``layers.[0-9],layers.1[0-4]``."""
    decades: dict[str, list[int]] = {}
    for path in blocks:
        decades.setdefault(path[:-1], []).append(int(path[-1]))
    return ",".join(
        f"{start}{_digits(run)}" for start, digits in decades.items() for run in _runs(digits)
    )


def _runs(digits: Iterable[int]) -> list[list[int]]:
    """Digits in runs without gaps."""
    runs: list[list[int]] = []
    for digit in sorted(digits):
        if runs and digit == runs[-1][-1] + 1:
            runs[-1].append(digit)
        else:
            runs.append([digit])
    return runs


def _digits(run: list[int]) -> str:
    return str(run[0]) if len(run) == 1 else f"[{run[0]}-{run[-1]}]"
