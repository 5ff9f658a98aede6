"""The driver: what cudaMalloc and the virtual memory calls say and where they put things.

The model of the allocator asks it for segments; a replay of a recorded trace puts one in
its place that answers with the recorded addresses.
"""

from __future__ import annotations

from typing import Protocol

from graphmem.allocator.settings import ROUND_LARGE_BYTES
from graphmem.allocator.sizes import round_up


class Driver(Protocol):
    """What the allocator needs of CUDA's driver. None and False mean out of memory."""

    @property
    def total_bytes(self) -> int | None:
        """The memory of the GPU; None: not known, and without bound."""

    def allocate(self, nbytes: int) -> int | None:
        """Memory of its own (cudaMalloc): its address."""

    def free(self, address: int, nbytes: int) -> None:
        """Give such memory back (cudaFree)."""

    def reserve(self, nbytes: int) -> int:
        """Addresses without memory (cuMemAddressReserve): the first of them."""

    def map(self, address: int, nbytes: int) -> bool:
        """Put memory behind addresses (cuMemCreate, cuMemMap)."""

    def unmap(self, address: int, nbytes: int) -> None:
        """Give the memory behind addresses back (cuMemUnmap, cuMemRelease)."""


class SimpleDriver:
    """A driver with a capacity, which hands out addresses one after the other.

    ``capacity`` are the bytes that this process may have (the GPU's memory, less what its
    context and other processes hold); None: without bound. ``total`` is the GPU's memory,
    by default the capacity. A segment starts at a multiple of 2 MiB, as CUDA's do.
    """

    def __init__(self, capacity: int | None = None, total: int | None = None) -> None:
        self.capacity = capacity
        self.used = 0
        self._total = capacity if total is None else total
        self._next = ROUND_LARGE_BYTES

    @property
    def total_bytes(self) -> int | None:
        """The memory of the GPU."""
        return self._total

    @property
    def free_bytes(self) -> int | None:
        """What is left of the capacity."""
        return None if self.capacity is None else self.capacity - self.used

    def allocate(self, nbytes: int) -> int | None:
        """The next addresses, if the capacity allows."""
        return self.reserve(nbytes) if self._take(nbytes) else None

    def free(self, address: int, nbytes: int) -> None:
        """Count the bytes back; addresses are never given out twice."""
        self.used -= nbytes

    def reserve(self, nbytes: int) -> int:
        """The next addresses."""
        address = self._next
        self._next += round_up(nbytes, ROUND_LARGE_BYTES)
        return address

    def map(self, address: int, nbytes: int) -> bool:
        """Count the bytes, if the capacity allows."""
        return self._take(nbytes)

    def unmap(self, address: int, nbytes: int) -> None:
        """Count the bytes back."""
        self.used -= nbytes

    def lend(self, nbytes: int) -> None:
        """Let the GPU have as much more memory as it takes to give ``nbytes`` now.

        Its total grows by ``nbytes`` too: where a memory fraction is the limit, that brings
        the request nearer, and a few such steps bring it through.
        """
        if self.capacity is not None:
            self.capacity = max(self.capacity, self.used + nbytes)
        if self._total is not None:
            self._total += nbytes

    def _take(self, nbytes: int) -> bool:
        if self.capacity is not None and self.used + nbytes > self.capacity:
            return False
        self.used += nbytes
        return True
