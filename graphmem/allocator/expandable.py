"""Expandable segments: one range of addresses a stream and pool, mapped page by page.

Source: ``find_expandable_block``, ``map_block``, ``try_allocate_expandable_block``,
``unmap_block`` and ``ExpandableSegment`` in c10/cuda/CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from graphmem.allocator.blocks import AddressRange, Block, Pool
from graphmem.allocator.heap import Heap
from graphmem.allocator.sizes import page_bytes, round_up

UNBOUNDED_BYTES = 1 << 40
"""The memory that addresses are reserved for where the GPU's is not known: 1 TiB."""


def grow_expandable(heap: Heap, pool: Pool, size: int, stream: int) -> Block | None:
    """A free block of at least ``size`` bytes, in no list; None: out of memory.

    Pages that were mapped before the memory ran out stay mapped, as they do in PyTorch.
    Source: ``try_allocate_expandable_block``.
    """
    block = _candidate(heap, pool, size, stream)
    if not block.mapped and not _map(heap, block, min(block.size, size)):
        return None
    while block.size < size:
        after = block.next
        if after is None:  # more than the addresses of a new range: no GPU has so much
            return None
        if not _map(heap, after, min(size - block.size, after.size)):
            return None
        block = after  # it has taken the mapped block before it in
    pool.remove(block)
    return block


def _candidate(heap: Heap, pool: Pool, size: int, stream: int) -> Block:
    """The lowest block from which on there is room: free, then unmapped, or only that."""
    for block in pool.unmapped_of(stream):
        before = block.prev
        first = before if before is not None and before.is_free else block
        if _has_room(first, size):
            return first
    return _reserve(heap, pool, stream)


def _has_room(block: Block | None, size: int) -> bool:
    while size > 0 and block is not None and block.is_free:
        size -= block.size
        block = block.next
    return size <= 0


def _reserve(heap: Heap, pool: Pool, stream: int) -> Block:
    """A new range of addresses, nothing of it mapped, as one block."""
    addresses = reserved_range(heap, pool)
    block = Block(
        addresses.address, addresses.size, stream, pool, addresses=addresses, mapped=False
    )
    pool.add_unmapped(block)
    return block


def reserved_range(heap: Heap, pool: Pool, address: int | None = None) -> AddressRange:
    """Addresses for 1 1/8 of the GPU's memory: new ones, or those that start at ``address``."""
    page = page_bytes(pool.small, heap.settings)
    total = heap.driver.total_bytes or UNBOUNDED_BYTES
    size = round_up(total + total // 8, page)
    return AddressRange(heap.driver.reserve(size) if address is None else address, size, page)


def _map(heap: Heap, block: Block, size: int) -> bool:
    """Map the first ``size`` bytes of an unmapped block, in whole pages, and free them.

    Source: ``map_block``.
    """
    addresses, pool = block.addresses, block.pool
    assert addresses is not None
    mapped = addresses.page_up(block.address + size) - block.address
    if not heap.driver.map(block.address, mapped):
        return False
    pool.remove_unmapped(block)
    block.mapped = True
    _cut(block, mapped, mapped=False)
    pool.merge(block, block.prev)
    pool.merge(block, block.next)
    pool.add(block)
    heap.stats.reserved.add(mapped)
    return True


def unmap(heap: Heap, block: Block) -> None:
    """Unmap the whole pages inside of a free block; what is left at its ends stays free.

    Source: ``unmap_block``.
    """
    addresses, pool = block.addresses, block.pool
    assert addresses is not None
    start = addresses.page_up(block.address)
    nbytes = addresses.page_down(block.address + block.size) - start
    if nbytes <= 0:
        return
    pool.remove(block)
    if start > block.address:
        before, block = block, _cut(block, start - block.address, mapped=True)
        pool.add(before)
        pool.remove(block)
    _cut(block, nbytes, mapped=True)
    block.mapped = False
    pool.merge(block, block.prev)
    pool.merge(block, block.next)
    pool.add_unmapped(block)
    heap.driver.unmap(start, nbytes)
    heap.stats.reserved.add(-nbytes)


def _cut(block: Block, size: int, *, mapped: bool) -> Block:
    """Cut a block after ``size`` bytes; the rest, if any, goes to its list. Returns the rest."""
    if size == block.size:
        return block
    rest = Block(
        block.address + size,
        block.size - size,
        block.stream,
        block.pool,
        addresses=block.addresses,
        mapped=mapped,
    )
    rest.insert_after(block, block.next)
    block.size = size
    if mapped:
        block.pool.add(rest)
    else:
        block.pool.add_unmapped(rest)
    return rest
