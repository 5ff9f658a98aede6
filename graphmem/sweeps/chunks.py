"""Chunks: the cases that a process is given at a time.

Cases that are the same but for the batch, or the sequence length, are a group: each process
that works on it traces a few of its sizes and has the others from those. A chunk is a part of
a group, so that answers come early and several processes share a group.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graphmem.sweeps.case import Case

MOST_CASES = 8
"""Cases in a chunk: a new answer about every half second of a middle-sized model."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some cases of a group; ``axis`` is what they differ in, ``sizes`` those of the group.

    Chunks of one ``lane`` gain from running in one process: its traces serve them all.
    """

    cases: tuple[Case, ...]
    axis: str | None = None
    sizes: tuple[int, ...] = ()
    lane: tuple[Case, int] | None = None

    def singles(self) -> list[Chunk]:
        """Each case for itself, to be traced."""
        return [Chunk((case,)) for case in self.cases]


def chunks(cases: Iterable[Case], lanes: int = 1) -> list[Chunk]:
    """All cases in chunks; those of a group in the order of their sizes.

    Args:
        lanes: how many processes may share a group; each traces for itself.
    """
    rest: list[Case] = list(dict.fromkeys(cases))
    made: list[Chunk] = []
    for axis in ("batch", "seq"):
        groups: dict[Case, list[Case]] = {}
        for case in rest:
            groups.setdefault(case.at(axis, None), []).append(case)
        rest = []
        for group in groups.values():
            sizes = tuple(sorted({s for case in group if (s := case.size(axis)) is not None}))
            if len(sizes) < 2 or len(sizes) < len(group):
                rest += group
            else:
                made += _parts(group, axis, sizes, lanes)
    return made + [Chunk((case,)) for case in rest]


def _parts(group: list[Case], axis: str, sizes: tuple[int, ...], lanes: int) -> list[Chunk]:
    ordered = sorted(group, key=lambda case: case.size(axis) or 0)
    parts = (ordered[i : i + MOST_CASES] for i in range(0, len(ordered), MOST_CASES))
    alike = group[0].at(axis, None)
    return [
        Chunk(tuple(part), axis, sizes, (alike, number % lanes))
        for number, part in enumerate(parts)
    ]
