"""Streams of allocations: their peak, and what one has that another has not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Event:
    """An allocation of ``nbytes`` at ``address``, or a release (negative ``nbytes``).

    ``calls`` are the numbers of the calls that were running, outermost first.
    """

    nbytes: int
    address: int
    calls: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Stream:
    """Events in order, and the names of the calls (``aten::mm``) in the order they began."""

    events: tuple[Event, ...]
    calls: tuple[str, ...]
    deaths: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "deaths", tuple(_deaths(self.events)))

    def operator(self, event: Event) -> str:
        """The operator on whose behalf memory was taken."""
        names = [self.calls[number] for number in event.calls]
        operators = [n for n in names if n.startswith("aten::") and n not in _PLUMBING]
        return operators[-1] if operators else (names[-1] if names else "Python")


# Operators that others call to get memory; who called them is what is of interest.
_PLUMBING = frozenset(
    {"aten::empty", "aten::empty_strided", "aten::empty_like", "aten::resize_", "aten::new_empty"}
)


@dataclass(frozen=True, slots=True)
class Scratch:
    """What one operator allocated in a real run beyond the prediction, or did not.

    ``kind`` is ``"allocated, not predicted"`` or ``"predicted, not allocated"``; ``bytes``
    is the sum over all of its calls, ``bytes_at_peak`` what of it was live at that
    stream's own peak.
    """

    operator: str
    kind: str
    count: int
    bytes: int
    bytes_at_peak: int


def _deaths(events: Sequence[Event]) -> list[int]:
    """For each event that allocates the index of its release, beyond the end if there is none.

    0 for releases.
    """
    deaths = [0] * len(events)
    open_: dict[int, int] = {}
    for index, event in enumerate(events):
        if event.nbytes > 0:
            open_[event.address] = index
            deaths[index] = len(events)
        elif event.address in open_:
            deaths[open_.pop(event.address)] = index
    return deaths


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


def without(events: Sequence[Event], left_out: set[int]) -> list[Event]:
    """The events without some allocations and without their releases."""
    kept: list[Event] = []
    open_: dict[int, bool] = {}
    for index, event in enumerate(events):
        if event.nbytes > 0:
            skip = open_[event.address] = index in left_out
        else:
            skip = open_.pop(event.address, False)
        if not skip:
            kept.append(event)
    return kept


def scratch_of(stream: Stream, extra: set[int], peak_index: int, kind: str) -> list[Scratch]:
    """The unmatched allocations by operator, the ones that matter at the peak first."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    at_peak = _live_at(stream.events, peak_index)
    for index in extra:
        event = stream.events[index]
        row = sums[stream.operator(event)]
        row[0] += 1
        row[1] += event.nbytes
        row[2] += event.nbytes if index in at_peak else 0
    rows = [Scratch(operator, kind, *row) for operator, row in sums.items()]
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
