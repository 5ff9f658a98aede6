"""A driver that answers as the recorded one did.

Between two events of blocks a trace may record what the driver was asked: segments taken
and given back. While the model serves a request, this driver compares its questions with
those, in order, and gives the recorded addresses. A segment given back in the middle of a
request shows that the driver had no memory at that moment, so it says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from graphmem.snapshots.trace import Action, Entry

_TAKEN = (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)
_MADE_UP = 1 << 62
"""Where segments are put that the recorded allocator did not take: far from all others."""


class RecordedDriver:
    """Answers from a queue of recorded driver events; what differs is in ``differences``."""

    def __init__(self) -> None:
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
        if entry is not None:
            if entry.size != nbytes:
                self.differences.append(f"a segment of {entry.size} recorded, {nbytes} replayed")
            return entry.address
        if self.refuses or self.frees_next:
            return None
        self.differences.append(f"only the replayed one: a segment of {nbytes}")
        return self.reserve(nbytes)

    def free(self, address: int, nbytes: int) -> None:
        """Give a segment back, as recorded."""
        self._given_back(Action.SEGMENT_FREE, address, nbytes)

    def reserve(self, nbytes: int) -> int:
        """The addresses of the next recorded mapping."""
        mapped = next((e for e in self._queue if e.action is Action.SEGMENT_MAP), None)
        if mapped is not None:
            return mapped.address
        address = self._next
        self._next += nbytes
        return address

    def map(self, address: int, nbytes: int) -> bool:
        """Map, as recorded; no where the recorded allocator had to give back first."""
        entry = self._taken(Action.SEGMENT_MAP)
        if entry is not None:
            if (entry.address, entry.size) != (address, nbytes):
                self.differences.append(
                    f"{entry.size} mapped at {entry.address:#x} recorded, "
                    f"{nbytes} at {address:#x} replayed"
                )
            return True
        if self.refuses or self.frees_next:
            return False
        self.differences.append(f"only the replayed one: {nbytes} mapped at {address:#x}")
        return True

    def unmap(self, address: int, nbytes: int) -> None:
        """Unmap, as recorded."""
        self._given_back(Action.SEGMENT_UNMAP, address, nbytes)

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
