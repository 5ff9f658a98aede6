"""ONNX Runtime's arena: best fit with coalescing, in regions taken from a device.

Rules, all of onnxruntime/core/framework/bfc_arena.{h,cc}:

- a request is rounded up to 256 bytes (``RoundedBytes``); 0 bytes take nothing;
- free chunks lie in 21 bins by size, from 256 bytes to 256 MiB (``BinNumForSize``); the first
  bin that may hold the request is searched for its smallest chunk that is large enough, of
  several at the lowest address, then the next bins (``FindChunkPtr``);
- a chunk is split if it is twice the request or more, or if the rest is at least
  ``max_dead_bytes`` (``SplitFreeChunkFromBin``): so almost half of a chunk may be slack;
- a freed chunk merges with its free neighbours of the same region (``Coalesce``);
- without a fitting chunk the arena grows (``Extend``): by the request, or by a region whose
  size doubles until the request fits, and once more after each region that fitted at once;
- a region that the device has no room for is asked for again, a tenth smaller each time, as long
  as it has room for the request;
- ``reserve`` takes exactly what is asked for, outside of the regions (``Reserve``).

Regions lie in the order in which they were taken: where the system puts them elsewhere, ties
between chunks of one size can fall another way.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from enum import StrEnum, unique

from graphmem.errors import InvariantError

ALIGNMENT = 256
"""Bytes that requests are rounded to (``kMinAllocationSize``)."""

_BINS = 21  # kNumBins
_BACK_OFF = 0.9  # kBackpedalFactor
_LEAST_BACK_OFF = 8 * 1024  # BFCArena::Extend


@unique
class ExtendStrategy(StrEnum):
    """How the arena grows, by the names of the provider option ``arena_extend_strategy``."""

    NEXT_POWER_OF_TWO = "kNextPowerOfTwo"
    SAME_AS_REQUESTED = "kSameAsRequested"


@dataclass(frozen=True, slots=True)
class ArenaSettings:
    """The settings of ``OrtArenaCfg``, with their defaults; sizes in bytes.

    ``limit`` None is no limit (``gpu_mem_limit``). ``capacity`` is what the device has for the
    arena, None for more than it asks for.
    Source: ``DEFAULT_*`` in onnxruntime/core/framework/bfc_arena.h.
    """

    strategy: ExtendStrategy = ExtendStrategy.NEXT_POWER_OF_TWO
    initial_chunk: int = 1 << 20
    max_dead_bytes: int = 128 << 20
    limit: int | None = None
    capacity: int | None = None


class ArenaOutOfMemoryError(Exception):
    """The limit, or the device, leaves no room for a request of ``nbytes``, rounded.

    ``run`` counts from 0, and ``moment`` is the number of kernels that it had run; None where
    the session was not even made.
    """

    def __init__(self, nbytes: int) -> None:
        super().__init__(f"no room for {nbytes} bytes")
        self.nbytes = nbytes
        self.run: int | None = None
        self.moment: int | None = None


class Chunk:
    """A piece of a region, or a reservation; ``requested`` is None while it is free."""

    __slots__ = ("address", "following", "preceding", "requested", "size")

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size
        self.requested: int | None = None
        self.preceding: Chunk | None = None
        self.following: Chunk | None = None

    @property
    def key(self) -> tuple[int, int]:
        """Its place among the free chunks of a bin."""
        return self.size, self.address


class Arena:
    """One arena; all counters in bytes.

    ``in_use`` counts whole chunks and reservations, ``requested`` what was asked for,
    ``held`` what was taken from the device; ``peak`` is the most that was in use.
    """

    def __init__(self, settings: ArenaSettings | None = None) -> None:
        self.settings = settings or ArenaSettings()
        self.in_use = 0
        self.requested = 0
        self.held = 0
        self.peak = 0
        self.regions: list[Chunk] = []
        self._reserved: set[Chunk] = set()
        limit = self.settings.limit
        first = self.settings.initial_chunk
        self._growth = rounded(first if limit is None else min(first, limit))
        self._next_address = 0
        self._bins: list[list[tuple[tuple[int, int], Chunk]]] = [[] for _ in range(_BINS)]

    def alloc(self, nbytes: int) -> Chunk | None:
        """A chunk for a request; None for one of 0 bytes.

        Raises:
            ArenaOutOfMemoryError: the arena may not grow that far.
        """
        if nbytes == 0:
            return None
        size = rounded(nbytes)
        chunk = self._find(size)
        if chunk is None:
            self._extend(size)
            chunk = self._find(size)
            if chunk is None:
                raise InvariantError(f"arena: no chunk of {size} bytes in a new region")
        chunk.requested = nbytes
        self._count(chunk.size, nbytes)
        return chunk

    def reserve(self, nbytes: int) -> Chunk | None:
        """Exactly ``nbytes``, outside of the regions; None for 0 bytes.

        ONNX Runtime's profile counts reservations as requested, too. The limit does not hold
        for them.

        Raises:
            ArenaOutOfMemoryError: the device has no room.
        """
        if nbytes == 0:
            return None
        if self._room(self.settings.capacity) < nbytes:
            raise ArenaOutOfMemoryError(nbytes)
        chunk = Chunk(-1, nbytes)
        chunk.requested = nbytes
        self._reserved.add(chunk)
        self.held += nbytes
        self._count(nbytes, nbytes)
        return chunk

    def free(self, chunk: Chunk | None) -> None:
        """Give a chunk back."""
        if chunk is None:
            return
        if chunk.requested is None:
            raise InvariantError("arena: a chunk is freed twice")
        self._count(-chunk.size, -chunk.requested)
        chunk.requested = None
        if chunk in self._reserved:
            self._reserved.remove(chunk)
            self.held -= chunk.size
        else:
            self._insert(self._merged(chunk))

    def _count(self, size: int, requested: int) -> None:
        self.in_use += size
        self.requested += requested
        self.peak = max(self.peak, self.in_use)

    def _find(self, size: int) -> Chunk | None:
        for index in range(_bin(size), _BINS):
            free = self._bins[index]
            at = bisect.bisect_left(free, (size, -1), key=_key)
            if at < len(free):
                _, chunk = free.pop(at)
                self._split(chunk, size)
                return chunk
        return None

    def _split(self, chunk: Chunk, size: int) -> None:
        """Cut a chunk to size where the rest is worth it."""
        rest = chunk.size - size
        if chunk.size < 2 * size and rest < self.settings.max_dead_bytes:
            return
        piece = Chunk(chunk.address + size, rest)
        chunk.size = size
        piece.preceding, piece.following = chunk, chunk.following
        if chunk.following is not None:
            chunk.following.preceding = piece
        chunk.following = piece
        self._insert(piece)

    def _merged(self, chunk: Chunk) -> Chunk:
        after = chunk.following
        if after is not None and after.requested is None:
            self._remove(after)
            _join(chunk, after)
        before = chunk.preceding
        if before is not None and before.requested is None:
            self._remove(before)
            _join(before, chunk)
            return before
        return chunk

    def _extend(self, size: int) -> None:
        limit = self.settings.limit
        room = None if limit is None else (limit - self.held) // ALIGNMENT * ALIGNMENT
        if room is not None and size > room:
            raise ArenaOutOfMemoryError(size)
        nbytes = size
        if self.settings.strategy is ExtendStrategy.NEXT_POWER_OF_TWO:
            nbytes = self._doubled(size)
            nbytes = nbytes if room is None else min(nbytes, room)
        nbytes = self._had(nbytes, size)
        region = Chunk(self._next_address, nbytes)
        self._next_address += nbytes + ALIGNMENT  # regions never touch
        self.regions.append(region)
        self.held += nbytes
        self._insert(region)

    def _had(self, nbytes: int, size: int) -> int:
        """The bytes that the device gives for a region, at least ``size``."""
        room = self._room(self.settings.capacity)
        while nbytes > room:
            nbytes = rounded(int(nbytes * _BACK_OFF))
            if nbytes < max(size, _LEAST_BACK_OFF):
                raise ArenaOutOfMemoryError(size)
        return nbytes

    def _room(self, most: int | None) -> float:
        return math.inf if most is None else most - self.held

    def _doubled(self, size: int) -> int:
        """The size of the next region, which has room for ``size``."""
        if size <= self._growth:
            nbytes = self._growth
            self._growth *= 2
            return nbytes
        while size > self._growth:
            self._growth *= 2
        return self._growth

    def _insert(self, chunk: Chunk) -> None:
        bisect.insort(self._bins[_bin(chunk.size)], (chunk.key, chunk), key=_key)

    def _remove(self, chunk: Chunk) -> None:
        free = self._bins[_bin(chunk.size)]
        del free[bisect.bisect_left(free, chunk.key, key=_key)]


def rounded(nbytes: int) -> int:
    """The bytes of a request, rounded up."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _key(entry: tuple[tuple[int, int], Chunk]) -> tuple[int, int]:
    return entry[0]


def _bin(size: int) -> int:
    """The bin of a chunk: the power of two of 256 bytes that it reaches (``BinNumForSize``)."""
    return min(_BINS - 1, max(size // ALIGNMENT, 1).bit_length() - 1)


def _join(first: Chunk, second: Chunk) -> None:
    """Make one chunk of two neighbours."""
    first.size += second.size
    first.following = second.following
    if second.following is not None:
        second.following.preceding = first
