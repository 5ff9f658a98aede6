"""Streams of allocations: their peak, and what one has that another has not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher


@dataclass(frozen=True, slots=True)
class Event:
    """An allocation of ``nbytes`` at ``address``, or a release (negative ``nbytes``).

    ``path`` names the operators that were running, outermost first.
    """

    nbytes: int
    address: int
    path: tuple[str, ...] = ()

    @property
    def operator(self) -> str:
        """The dispatched operator on whose behalf the memory was taken."""
        operators = [name for name in self.path if "::" in name and "autograd::" not in name]
        return operators[-1] if operators else (self.path[-1] if self.path else "Python")


@dataclass(frozen=True, slots=True)
class Scratch:
    """What one operator allocated beyond the prediction (or less: negative ``count``).

    ``bytes`` is the sum over all of its calls, ``bytes_at_peak`` what was live at the
    measured peak.
    """

    operator: str
    count: int
    bytes: int
    bytes_at_peak: int


def peak_of(events: Sequence[Event], start: int) -> tuple[int, int]:
    """The highest sum of live bytes, and the index of the event that reaches it.

    Args:
        start: bytes that are live before the first event.
    """
    live, best, at = start, start, 0
    for index, event in enumerate(events):
        live += event.nbytes
        if live > best:
            best, at = live, index
    return best, at


def unmatched(events: Sequence[Event], predicted: Sequence[int]) -> set[int]:
    """The indices of allocations that a predicted sequence of sizes does not have.

    Both are in order; what is common is the longest common run of sizes, as ``difflib``
    finds it.
    """
    allocations = [index for index, event in enumerate(events) if event.nbytes > 0]
    sizes = [events[index].nbytes for index in allocations]
    matcher = SequenceMatcher(None, sizes, list(predicted), autojunk=False)
    found = set(allocations)
    for block in matcher.get_matching_blocks():
        found.difference_update(allocations[block.a : block.a + block.size])
    return found


def without(events: Sequence[Event], left_out: set[int]) -> list[Event]:
    """The stream without some allocations and without their releases."""
    kept: list[Event] = []
    open_: dict[int, bool] = {}
    for index, event in enumerate(events):
        if event.nbytes > 0:
            open_[event.address] = index in left_out
            skip = index in left_out
        else:
            skip = open_.pop(event.address, False)
        if not skip:
            kept.append(event)
    return kept


def scratch_of(events: Sequence[Event], extra: set[int], peak_index: int) -> list[Scratch]:
    """The unmatched allocations by operator, the ones that matter at the peak first."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    at_peak = _live_at(events, peak_index)
    for index in extra:
        event = events[index]
        row = sums[event.operator]
        row[0] += 1
        row[1] += event.nbytes
        row[2] += event.nbytes if index in at_peak else 0
    rows = [Scratch(operator, *row) for operator, row in sums.items()]
    return sorted(rows, key=lambda row: (-row.bytes_at_peak, -row.bytes, row.operator))


def _live_at(events: Iterable[Event], peak_index: int) -> set[int]:
    live: dict[int, int] = {}
    for index, event in enumerate(events):
        if index > peak_index:
            break
        if event.nbytes > 0:
            live[event.address] = index
        else:
            live.pop(event.address, None)
    return set(live.values())
