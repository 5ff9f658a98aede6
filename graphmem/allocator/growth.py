"""A new segment from the driver.

Source: ``alloc_block`` in c10/cuda/CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from graphmem.allocator.blocks import Block, Pool
from graphmem.allocator.expandable import grow_expandable
from graphmem.allocator.heap import Heap
from graphmem.allocator.sizes import segment_bytes


def new_segment(heap: Heap, pool: Pool, size: int, stream: int) -> Block | None:
    """A block of a new or grown segment, in no list; None: the driver has no memory."""
    nbytes = segment_bytes(size, heap.settings)
    allowed = heap.allowed_bytes
    if allowed is not None and heap.stats.reserved.current + nbytes > allowed:
        return None
    if heap.settings.expandable_segments:
        return grow_expandable(heap, pool, size, stream)
    address = heap.driver.allocate(nbytes)
    if address is None:
        return None
    heap.stats.segments.add(1)
    heap.stats.reserved.add(nbytes)
    return Block(address, nbytes, stream, pool)
