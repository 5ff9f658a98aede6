"""Blocks: the pieces of a segment, in a doubly linked list, and the pools of free ones.

Source: ``Block``, ``BlockPool``, ``BlockComparatorSize``, ``BlockComparatorAddress`` and
``try_merge_blocks`` in c10/cuda/CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AddressRange:
    """The virtual addresses of an expandable segment; pages of it are mapped at need."""

    address: int
    size: int
    page: int

    def page_down(self, address: int) -> int:
        """The start of the page that an address lies in (``segmentLeft``)."""
        return address - (address - self.address) % self.page

    def page_up(self, address: int) -> int:
        """The next start of a page (``segmentRight``)."""
        return self.page_down(address + self.page - 1)


class Block:
    """A piece of a segment: handed out, free, or (expandable segments) not mapped.

    ``size`` are its bytes; ``requested`` those that were asked for, unrounded. ``uses``
    are the other streams that ``record_stream`` named; ``pending`` means that it was freed
    but waits for their events. ``addresses`` is the expandable segment that it is part of.
    ``age`` is the pool's count of look-ups when it was put in.
    """

    __slots__ = (
        "address",
        "addresses",
        "age",
        "allocated",
        "mapped",
        "next",
        "pending",
        "pool",
        "prev",
        "requested",
        "size",
        "stream",
        "uses",
    )

    def __init__(
        self,
        address: int,
        size: int,
        stream: int,
        pool: Pool,
        *,
        addresses: AddressRange | None = None,
        mapped: bool = True,
    ) -> None:
        self.address = address
        self.size = size
        self.stream = stream
        self.pool = pool
        self.addresses = addresses
        self.mapped = mapped
        self.requested = 0
        self.allocated = False
        self.pending = False
        self.uses: frozenset[int] = frozenset()
        self.prev: Block | None = None
        self.next: Block | None = None
        self.age = 0

    @property
    def is_split(self) -> bool:
        """Whether the segment has other blocks."""
        return self.prev is not None or self.next is not None

    @property
    def is_free(self) -> bool:
        """Whether it is neither handed out nor waits for an event."""
        return not self.allocated and not self.pending

    @property
    def expandable_size(self) -> int:
        """Its bytes, and those of the unmapped addresses right after it."""
        after = self.next
        return self.size + (after.size if after is not None and not after.mapped else 0)

    def insert_after(self, before: Block | None, after: Block | None) -> None:
        """Link this new block in between two neighbours (``splice``)."""
        self.prev, self.next = before, after
        if before is not None:
            before.next = self
        if after is not None:
            after.prev = self

    def __repr__(self) -> str:
        state = "allocated" if self.allocated else "pending" if self.pending else "free"
        return f"<{state} block of {self.size} at {self.address:#x}>"


class Pool:
    """The free blocks of the small or the large pool, in the order of (stream, size, address).

    ``lookups`` counts the searches, for the ages that garbage collection goes by.
    """

    def __init__(self, *, small: bool) -> None:
        self.small = small
        self.lookups = 0
        self._free: dict[int, list[tuple[int, int, Block]]] = {}
        self._unmapped: dict[int, list[tuple[int, Block]]] = {}

    def add(self, block: Block) -> None:
        """Put a free block in (``insert_into_blocks``)."""
        block.age = self.lookups
        free = self._free.setdefault(block.stream, [])
        key = (block.size, block.address, block)
        free.insert(bisect_left(free, key), key)

    def remove(self, block: Block) -> None:
        """Take a free block out."""
        free = self._free[block.stream]
        del free[bisect_left(free, (block.size, block.address))]

    def fitting(self, size: int, stream: int) -> Iterator[Block]:
        """The free blocks of a stream that are large enough, best fit first."""
        free = self._free.get(stream, ())
        for index in range(bisect_left(free, (size,)), len(free)):
            yield free[index][2]

    def best(self, size: int, stream: int) -> Block | None:
        """The smallest free block of a stream that is large enough (``lower_bound``)."""
        free = self._free.get(stream)
        if free is None:
            return None
        index = bisect_left(free, (size,))
        return free[index][2] if index < len(free) else None

    def free_blocks(self) -> list[Block]:
        """All free blocks, by stream, size and address."""
        return [entry[2] for stream in sorted(self._free) for entry in self._free[stream]]

    def free_of(self, stream: int) -> list[Block]:
        """The free blocks of one stream, by size and address."""
        return [entry[2] for entry in self._free.get(stream, ())]

    def add_unmapped(self, block: Block) -> None:
        """Put in addresses of an expandable segment that nothing is mapped to."""
        unmapped = self._unmapped.setdefault(block.stream, [])
        key = (block.address, block)
        unmapped.insert(bisect_left(unmapped, key), key)

    def remove_unmapped(self, block: Block) -> None:
        """Take unmapped addresses out."""
        unmapped = self._unmapped[block.stream]
        del unmapped[bisect_left(unmapped, (block.address,))]

    def unmapped_of(self, stream: int) -> list[Block]:
        """The unmapped addresses of a stream's expandable segments, lowest first."""
        return [entry[1] for entry in self._unmapped.get(stream, ())]

    def merge(self, block: Block, neighbour: Block | None) -> int:
        """Take a free neighbour into a block that is in no list; its bytes, or 0 if it can't.

        Source: ``try_merge_blocks``.
        """
        if neighbour is None or not neighbour.is_free or neighbour.mapped != block.mapped:
            return 0
        if neighbour.mapped:
            self.remove(neighbour)
        else:
            self.remove_unmapped(neighbour)
        if block.prev is neighbour:
            block.address = neighbour.address
            block.insert_after(neighbour.prev, block.next)
        else:
            block.insert_after(block.prev, neighbour.next)
        block.size += neighbour.size
        return neighbour.size
