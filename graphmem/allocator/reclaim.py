"""Giving cached memory back to the driver: what is free, whole and no longer wanted.

Source: ``release_cached_blocks``, ``release_available_cached_blocks``, ``release_block``
and ``garbage_collect_cached_blocks`` in c10/cuda/CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from graphmem.allocator.blocks import Block, Pool
from graphmem.allocator.expandable import unmap
from graphmem.allocator.heap import Heap


def release_cached(heap: Heap) -> None:
    """Give back every segment that is wholly free, and the free pages of expandable ones.

    The caller has freed the blocks that waited for events. Source:
    ``release_cached_blocks``, ``release_blocks``.
    """
    for pool in (heap.large, heap.small):
        free = pool.free_blocks()
        for block in free:
            if block.addresses is None and not block.is_split:
                _release(heap, block)
        for block in free:
            if block.addresses is not None:
                unmap(heap, block)
                _forget_unmapped(block)


def _forget_unmapped(block: Block) -> None:
    """Drop an expandable segment of which nothing is mapped (``release_expandable_segment``)."""
    if not block.mapped and not block.is_split:
        block.pool.remove_unmapped(block)


def release_oversize(heap: Heap, pool: Pool, size: int, stream: int) -> bool:
    """Give back as many oversize blocks of the stream as a request needs; whether enough.

    One that is large enough if there is one, else several from the largest down. Only
    where ``max_split_size_mb`` is set and segments are not expandable, since those can't
    be given back whole. Source: ``release_available_cached_blocks``.
    """
    limit = heap.settings.max_split_bytes
    if limit is None or heap.settings.expandable_segments:
        return False
    wanted = max(size, limit)
    enough = pool.best(wanted, stream)
    if enough is not None:
        _release(heap, enough)
        return True
    for block in reversed(pool.free_of(stream)):
        if wanted <= 0 or block.size < limit:
            break
        wanted -= block.size
        _release(heap, block)
    return wanted <= 0


def collect_garbage(heap: Heap) -> None:
    """Give back large cached blocks that have not been used for longer than the average.

    Until what is reserved is below the threshold or nothing is left to free. Source:
    ``garbage_collect_cached_blocks``.
    """
    allowed = heap.allowed_bytes
    if allowed is None:
        return
    threshold = int(heap.settings.garbage_collection_threshold * allowed)
    excess = heap.stats.reserved.current - threshold
    whole = [block for block in heap.large.free_blocks() if not block.is_split]
    while excess > 0 and whole:
        mean_age = sum(_age(block) for block in whole) / len(whole)
        old = [block for block in whole if _age(block) >= mean_age]
        for block in old:
            excess -= block.size
            _release(heap, block)
        whole = [block for block in whole if _age(block) < mean_age]


def _age(block: Block) -> int:
    """How many look-ups ago a block was put in its pool (``gc_count``)."""
    return block.pool.lookups - block.age


def _release(heap: Heap, block: Block) -> None:
    """Give a segment back that is one free block (``release_block``)."""
    block.pool.remove(block)
    heap.driver.free(block.address, block.size)
    heap.stats.segments.add(-1)
    heap.stats.reserved.add(-block.size)
