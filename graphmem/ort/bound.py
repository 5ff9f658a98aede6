"""The least memory that an order of nodes needs: buffers by last use, packed into one block.

1. A buffer lives from the node that makes it to the last that reads it.
2. Buffers are placed by size, the largest first, each at the lowest offset that is free for
   as long as it lives.

The result can be had: it is the size of one block with an offset for each buffer. It is no
proof that less would not do (best packing is NP-hard); no packing needs less than the most
bytes that live at one time, which is given beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple


class Interval(NamedTuple):
    """A buffer: its bytes, and the first and last node that it lives at."""

    nbytes: int
    first: int
    last: int


class Best(NamedTuple):
    """``packed`` bytes of one block for all buffers, and the most that ``live`` at a time."""

    packed: int
    live: int


def best_arena(buffers: Sequence[Interval]) -> Best:
    """The block that all buffers fit into, and the most bytes that live at one time."""
    alive: dict[int, list[tuple[int, int]]] = defaultdict(list)  # node -> (offset, bytes)
    packed = 0
    for buffer in sorted(buffers, key=lambda b: (-b.nbytes, b.first)):
        if not buffer.nbytes:
            continue
        nodes = range(buffer.first, buffer.last + 1)
        offset = _lowest(buffer.nbytes, sorted({one for node in nodes for one in alive[node]}))
        for node in nodes:
            alive[node].append((offset, buffer.nbytes))
        packed = max(packed, offset + buffer.nbytes)
    return Best(packed, _most_live(buffers))


def _lowest(nbytes: int, others: list[tuple[int, int]]) -> int:
    """The lowest offset at which nothing lies that lives at the same time."""
    offset = 0
    for at, taken in others:
        if at - offset >= nbytes:
            break
        offset = max(offset, at + taken)
    return offset


def _most_live(buffers: Sequence[Interval]) -> int:
    changes: dict[int, int] = {}
    for buffer in buffers:
        changes[buffer.first] = changes.get(buffer.first, 0) + buffer.nbytes
        changes[buffer.last + 1] = changes.get(buffer.last + 1, 0) - buffer.nbytes
    most = live = 0
    for _, change in sorted(changes.items()):
        live += change
        most = max(most, live)
    return most
