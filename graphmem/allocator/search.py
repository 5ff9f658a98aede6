"""Which free block serves a request, and whether it is split.

Source: ``get_free_block`` and ``should_split`` in c10/cuda/CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from graphmem.allocator.blocks import Block, Pool
from graphmem.allocator.heap import Heap
from graphmem.allocator.settings import MIN_BLOCK_BYTES, SMALL_BYTES, AllocatorSettings


def find_free(heap: Heap, pool: Pool, size: int, stream: int) -> Block | None:
    """The free block for a rounded request, left in its pool; None if there is none.

    The smallest that is large enough, of the same stream, ties to the lowest address. A
    block that is never split (oversize) serves no smaller request, and an oversize request
    takes no block that is larger by ``max_non_split_rounding`` or more.
    """
    settings = heap.settings
    block = pool.best(size, stream)
    if block is not None and block.addresses is not None:
        block = _best_expandable(pool, size, stream, settings)
    if block is None or settings.max_split_bytes is None:
        return block
    if settings.is_oversize(size):
        return block if block.size < size + settings.non_split_rounding_bytes else None
    return None if settings.is_oversize(block.size) else block


def _best_expandable(
    pool: Pool, size: int, stream: int, settings: AllocatorSettings
) -> Block | None:
    """The best fit where the first one is part of an expandable segment.

    A block that can grow counts with the size that it can grow to, so the search goes on
    while the next one is smaller in that sense. Where the setting was switched off since,
    expandable blocks serve nothing.
    """
    fitting = pool.fitting(size, stream)
    if not settings.expandable_segments:
        return next((block for block in fitting if block.addresses is None), None)
    best = next(fitting)
    for block in fitting:
        if best.addresses is None or block.expandable_size >= best.expandable_size:
            break
        best = block
    return best


def should_split(block: Block, size: int, settings: AllocatorSettings) -> bool:
    """Whether the rest of a block, after a rounded request, becomes a block of its own.

    In the small pool, and wherever segments are expandable, a rest of 512 bytes does. In
    the large pool only one of more than 1 MiB: up to 1 MiB stays with the request as
    slack, and counts as allocated.
    """
    rest = block.size - size
    if block.pool.small or settings.expandable_segments:
        return rest >= MIN_BLOCK_BYTES
    return rest > SMALL_BYTES and not settings.is_oversize(size)
