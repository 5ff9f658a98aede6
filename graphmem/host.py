"""The host's memory: what a run's tensors take there.

Pinned blocks come from PyTorch's own caching allocator for the host, which rounds each size up to
a power of two, gives a freed block to the next request of the same size only, and returns none.
Source: aten/src/ATen/core/CachingHostAllocator.h, ``allocate`` and ``get_free_block`` (torch
2.13; its settings for larger sizes are off by default).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate

from graphmem.report import HostItem
from graphmem.schedule import Category, Schedule, Storage

_OFFLOADED = frozenset(
    {
        Category.PARAMETERS,
        Category.SAVED_FOR_BACKWARD,
        Category.GRADIENTS,
        Category.OPTIMIZER_STATES,
    }
)
_MADE_EMPTY = frozenset({"aten.empty.memory_format", "aten.empty", "aten.empty_like"})


def host_bytes(schedule: Schedule, *, pinned: bool) -> HostItem:
    """What is offloaded.

    Args:
        pinned: the buffers that are made to be copied into are pinned; an optimizer's own
            states are not.
    """
    there = [s for s in schedule.storages if s.host and s.category in _OFFLOADED]
    blocks: dict[int, list[Storage]] = defaultdict(list)
    for storage in there:
        if storage.op in _MADE_EMPTY and storage.nbytes:
            blocks[_power_of_two(storage.nbytes)].append(storage)
    return HostItem(
        peak_bytes=_most((s, s.nbytes) for s in there),
        pinned_bytes=sum(_most((s, size) for s in of) for size, of in blocks.items())
        if pinned
        else None,
    )


def _power_of_two(nbytes: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << (nbytes - 1).bit_length()


def _most(sizes: Iterable[tuple[Storage, int]]) -> int:
    """The most bytes that are there at a time; one that goes makes room for the next."""
    changes: dict[int, int] = defaultdict(int)
    for storage, nbytes in sizes:
        changes[storage.born] += nbytes
        if storage.freed is not None:
            changes[storage.freed + 1] -= nbytes
    return max(accumulate(change for _, change in sorted(changes.items())), default=0)
