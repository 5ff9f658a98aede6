"""A driver that answers as the recorded one did.

Between two events of blocks a trace may record what the driver was asked: segments taken
and given back. While the model serves a request, this driver compares its questions with
those, in order, and gives the recorded addresses. A segment given back in the middle of a
request shows that the driver had no memory at that moment, so it says so. Addresses that
the model still holds, after a difference, are never given twice.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable

from graphmem.allocator import Segment
from graphmem.errors import ModelLoadError
from graphmem.snapshots.trace import Action, Entry

_TAKEN = (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)
_MADE_UP = 1 << 62
"""Where segments are put that the recorded allocator did not take: far from all others."""


class _Held:
    """Disjoint ranges of addresses, by their starts."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def overlaps(self, start: int, end: int) -> bool:
        """Whether any address of a range is held."""
        at = bisect_right(self._ends, start)
        return at < len(self._starts) and self._starts[at] < end

    def add(self, start: int, end: int) -> None:
        """Hold a range, of which nothing is held."""
        at = bisect_right(self._starts, start)
        self._starts.insert(at, start)
        self._ends.insert(at, end)

    def cut(self, start: int, end: int) -> None:
        """Let go of a range, whatever of it is held."""
        first = bisect_right(self._ends, start)
        last = bisect_left(self._starts, end)
        left = [(s, start) for s in self._starts[first:last] if s < start]
        right = [(end, e) for e in self._ends[first:last] if e > end]
        kept = [*left, *right]
        self._starts[first:last] = [s for s, _ in kept]
        self._ends[first:last] = [e for _, e in kept]


class RecordedDriver:
    """Answers from a queue of recorded driver events; what differs is in ``differences``.

    ``start``: what the model holds before.
    """

    def __init__(self, start: Iterable[Segment] = ()) -> None:
        self._held = _Held()
        self._reserved: set[int] = set()
        for segment in start:
            self._held.add(segment.address, segment.address + segment.size)
            if segment.expandable:
                self._reserved.add(segment.address)
        self.differences: list[str] = []
        self.refuses = False
        self._queue: deque[Entry] = deque()
        self._next = _MADE_UP

    @property
    def total_bytes(self) -> int | None:
        """A trace does not tell."""
        return None

    def expect(self, entries: Iterable[Entry], *, refuses: bool = False) -> None:
        """What was recorded for what comes next. ``refuses``: it ran out of memory in the end."""
        self._queue = deque(entries)
        self.refuses = refuses

    @property
    def frees_next(self) -> bool:
        """Whether the next recorded event gives something back."""
        return bool(self._queue) and self._queue[0].action not in _TAKEN

    def settle(self) -> list[str]:
        """What differed since the last call, with what was recorded but never asked for."""
        missed = [f"only the recorded one: {_told(entry)}" for entry in self._queue]
        differences, self.differences = self.differences + missed, []
        self._queue.clear()
        return differences

    # -- what the model asks

    def allocate(self, nbytes: int) -> int | None:
        """The recorded segment, or None where the recorded allocator had to give back first."""
        entry = self._taken(Action.SEGMENT_ALLOC)
        if entry is None and (self.refuses or self.frees_next):
            return None
        address = self._made_up(nbytes) if entry is None else entry.address
        if entry is None:
            self.differences.append(f"only the replayed one: a segment of {nbytes}")
        elif entry.size != nbytes:
            self.differences.append(f"a segment of {entry.size} recorded, {nbytes} replayed")
        if self._held.overlaps(address, address + nbytes):
            self.differences.append(f"the replay still holds memory at {address:#x}")
            address = self._made_up(nbytes)
        self._held.add(address, address + nbytes)
        return address

    def free(self, address: int, nbytes: int) -> None:
        """Give a segment back, as recorded."""
        self._held.cut(address, address + nbytes)
        self._given_back(Action.SEGMENT_FREE, address, nbytes)

    def reserve(self, nbytes: int) -> int:
        """The addresses of the next recorded mapping."""
        mapped = next((e for e in self._queue if e.action is Action.SEGMENT_MAP), None)
        if mapped is None or self._is_taken(mapped):
            return self._made_up(nbytes)
        self._reserved.add(mapped.address)
        return mapped.address

    def _is_taken(self, entry: Entry) -> bool:
        held = self._held.overlaps(entry.address, entry.address + entry.size)
        return held or entry.address in self._reserved

    def map(self, address: int, nbytes: int) -> bool:
        """Map, as recorded; no where the recorded allocator had to give back first."""
        entry = self._taken(Action.SEGMENT_MAP)
        if entry is None and (self.refuses or self.frees_next):
            return False
        if self._held.overlaps(address, address + nbytes):
            raise ModelLoadError(f"{nbytes} bytes at {address:#x} would be mapped twice")
        self._held.add(address, address + nbytes)
        if entry is None:
            self.differences.append(f"only the replayed one: {nbytes} mapped at {address:#x}")
        elif (entry.address, entry.size) != (address, nbytes):
            self.differences.append(
                f"{entry.size} mapped at {entry.address:#x} recorded, "
                f"{nbytes} at {address:#x} replayed"
            )
        return True

    def unmap(self, address: int, nbytes: int) -> None:
        """Unmap, as recorded."""
        self._held.cut(address, address + nbytes)
        self._given_back(Action.SEGMENT_UNMAP, address, nbytes)

    def _made_up(self, nbytes: int) -> int:
        address = self._next
        self._next += nbytes
        return address

    def _taken(self, action: Action) -> Entry | None:
        if self._queue and self._queue[0].action is action:
            return self._queue.popleft()
        return None

    def _given_back(self, action: Action, address: int, nbytes: int) -> None:
        for entry in self._queue:
            if (entry.action, entry.address, entry.size) == (action, address, nbytes):
                self._queue.remove(entry)
                return
        self.differences.append(f"only the replayed one: {action} of {nbytes} at {address:#x}")


def _told(entry: Entry) -> str:
    return f"{entry.action} of {entry.size} at {entry.address:#x}"
