"""A model of CUDACachingAllocator: from requests to blocks, segments and reserved bytes.

It makes the decisions of PyTorch's allocator for one device, in the same order: which free
block serves a request, whether it is split, when a segment is taken from the driver or
given back. One rule family a file: ``sizes`` (rounding), ``search`` (best fit, splitting),
``growth`` and ``expandable`` (new memory), ``reclaim`` (giving back, garbage collection).

Not covered: the private pools of CUDA graphs and ``torch.cuda.MemPool``, and free-memory
callbacks (CUDA IPC); blocks of these never mix with others.

Source: ``DeviceCachingAllocator`` in c10/cuda/CUDACachingAllocator.cpp; it is the same from
torch 2.0 to 2.14 but for the settings that came later.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphmem.allocator.blocks import Block, Pool
from graphmem.allocator.driver import Driver, SimpleDriver
from graphmem.allocator.growth import new_segment
from graphmem.allocator.heap import Heap
from graphmem.allocator.reclaim import collect_garbage, release_cached, release_oversize
from graphmem.allocator.search import find_free, should_split
from graphmem.allocator.segments import Segment, restore, segments_of
from graphmem.allocator.settings import AllocatorSettings
from graphmem.allocator.sizes import page_bytes, round_request, round_up, segment_bytes
from graphmem.allocator.stats import Stats
from graphmem.errors import InvariantError


class OutOfMemoryError(Exception):
    """No memory for a request, after everything free was given back.

    It is an answer rather than a mistake: whoever asks "does it fit" catches it.
    ``segment_bytes`` is what the driver was asked for; ``free_bytes`` the largest free
    block that was left to the request's stream, ``allocated_bytes`` and ``reserved_bytes``
    the state in which it failed.
    """

    def __init__(self, heap: Heap, requested: int, size: int, stream: int) -> None:
        free = heap.pool_of(size).free_of(stream)
        self.requested_bytes = requested
        self.segment_bytes = _asked(heap, size)
        self.allocated_bytes = heap.stats.allocated.current
        self.reserved_bytes = heap.stats.reserved.current
        self.free_bytes = free[-1].size if free else 0
        super().__init__(
            f"out of memory: no {self.segment_bytes} bytes for a request of {requested}, with "
            f"{self.allocated_bytes} allocated and {self.reserved_bytes} reserved"
        )


def _asked(heap: Heap, size: int) -> int:
    """What the driver is asked for: a segment, or whole pages of an expandable one."""
    if not heap.settings.expandable_segments:
        return segment_bytes(size, heap.settings)
    return round_up(size, page_bytes(heap.pool_of(size).small, heap.settings))


class CachingAllocator:
    """The caching allocator of one device.

    ``capacity`` are the bytes that the driver can give; None: without bound. Another
    ``driver`` answers for addresses and memory in its place.
    """

    def __init__(
        self,
        settings: AllocatorSettings | None = None,
        capacity: int | None = None,
        driver: Driver | None = None,
    ) -> None:
        self.settings = AllocatorSettings() if settings is None else settings
        self._heap = Heap(self.settings, SimpleDriver(capacity) if driver is None else driver)

    @property
    def stats(self) -> Stats:
        """The counters, current and peak."""
        return self._heap.stats

    def malloc(self, nbytes: int, stream: int = 0) -> Block:
        """A block for a request; keep it as the handle to free it by.

        Source: ``DeviceCachingAllocator::malloc``.

        Raises:
            OutOfMemoryError: when the driver has no memory and nothing is left to give back.
            InvariantError: for a request of no bytes, which PyTorch never passes on.
        """
        if nbytes <= 0:
            raise InvariantError(f"a request of {nbytes} bytes takes no block")
        heap = self._heap
        size = round_request(nbytes, self.settings)
        pool = heap.pool_of(size)
        if heap.collects_garbage:
            pool.lookups += 1
        block = find_free(heap, pool, size, stream)
        if block is not None:
            pool.remove(block)
        else:
            block = self._grow(pool, size, stream)
        if block is None:
            heap.stats.out_of_memory += 1
            raise OutOfMemoryError(heap, nbytes, size, stream)
        return _hand_out(heap, block, size, nbytes)

    def _grow(self, pool: Pool, size: int, stream: int) -> Block | None:
        """New memory: at once, or after oversize blocks or everything cached was given back."""
        heap = self._heap
        if heap.collects_garbage:
            collect_garbage(heap)
        block = new_segment(heap, pool, size, stream)
        if block is None and release_oversize(heap, pool, size, stream):
            block = new_segment(heap, pool, size, stream)
        if block is None:
            self.empty_cache()
            heap.stats.retries += 1
            block = new_segment(heap, pool, size, stream)
        return block

    def would_reuse(self, nbytes: int, stream: int = 0) -> bool:
        """Whether a cached block would serve a request, as things are."""
        size = round_request(nbytes, self.settings)
        return find_free(self._heap, self._heap.pool_of(size), size, stream) is not None

    def free(self, block: Block, *, pending: bool = False) -> None:
        """Take a block back. After ``record_stream``, or if ``pending``, it waits.

        Source: ``DeviceCachingAllocator::free``.

        Raises:
            InvariantError: if the block is not handed out.
        """
        if not block.allocated:
            raise InvariantError(f"{block} is freed twice")
        block.allocated = False
        self._heap.stats.allocated.add(-block.size)
        if block.uses or pending:
            block.uses = frozenset()
            block.pending = True
            self._heap.pending.append(block)
        else:
            _put_back(self._heap, block)

    def record_stream(self, block: Block, stream: int) -> None:
        """Another stream works on the block: once freed, it waits for that work.

        Source: ``recordStream``.
        """
        if stream != block.stream:
            block.uses |= {stream}

    def complete(self, block: Block) -> None:
        """The events that a freed block waited for have happened (``process_events``).

        Raises:
            InvariantError: if the block does not wait.
        """
        if not block.pending:
            raise InvariantError(f"{block} waits for no event")
        self._heap.pending.remove(block)
        block.pending = False
        _put_back(self._heap, block)

    def synchronize(self) -> None:
        """All events have happened (``synchronize_and_free_events``)."""
        for block in tuple(self._heap.pending):
            self.complete(block)

    def empty_cache(self) -> None:
        """Give every wholly free segment back (``torch.cuda.empty_cache``)."""
        self.synchronize()
        release_cached(self._heap)

    def at(self, address: int) -> Block | None:
        """The block in use, or waiting for an event, that starts at an address."""
        return self._heap.active.get(address)

    def segments(self) -> tuple[Segment, ...]:
        """All segments and what they are cut into, by address."""
        return segments_of(self._heap)

    def restore(self, segments: Iterable[Segment]) -> None:
        """Start from these segments; only a fresh allocator can.

        Raises:
            InvariantError: if something was allocated before, or a segment is not filled.
        """
        if self.stats.reserved.peak:
            raise InvariantError("only a fresh allocator can start from other segments")
        restore(self._heap, segments)


def _hand_out(heap: Heap, block: Block, size: int, requested: int) -> Block:
    """Split a block if the rule says so, and count it. Source: ``alloc_found_block``."""
    stats = heap.stats
    counts = block.addresses is None  # inactive_split leaves expandable segments out
    if counts and block.is_split:
        stats.inactive_split.add(-block.size)
    if should_split(block, size, heap.settings):
        block = _split(block, size)
        if counts and block.next is not None:
            stats.inactive_split.add(block.next.size)
    block.allocated = True
    block.requested = requested
    heap.active[block.address] = block
    stats.allocated.add(block.size)
    stats.active.add(block.size)
    stats.requested.add(requested)
    return block


def _split(rest: Block, size: int) -> Block:
    """Cut the first bytes off a free block that is in no list; the rest goes to its pool."""
    pool = rest.pool
    block = Block(rest.address, size, rest.stream, pool, addresses=rest.addresses)
    block.insert_after(rest.prev, rest)
    rest.address += size
    rest.size -= size
    pool.add(rest)
    return block


def _put_back(heap: Heap, block: Block) -> None:
    """Make a block free and merge it with both neighbours. Source: ``free_block``."""
    pool, stats = block.pool, heap.stats
    del heap.active[block.address]
    stats.active.add(-block.size)
    stats.requested.add(-block.requested)
    merged = pool.merge(block, block.prev) + pool.merge(block, block.next)
    pool.add(block)
    if block.addresses is None:
        stats.inactive_split.add((block.size if block.is_split else 0) - merged)
