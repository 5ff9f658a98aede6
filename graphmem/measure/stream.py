"""Streams of allocations: their peak, and what one has that another has not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any


# Operators that others call to get memory; who called them is what is of interest.
_PLUMBING = frozenset(
    {"aten::empty", "aten::empty_strided", "aten::empty_like", "aten::resize_", "aten::new_empty"}
)


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
        """The operator on whose behalf the memory was taken."""
        operators = [n for n in self.path if n.startswith("aten::") and n not in _PLUMBING]
        return operators[-1] if operators else (self.path[-1] if self.path else "Python")


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


def unmatched(
    measured: Sequence[Event], predicted: Sequence[Event]
) -> tuple[set[int], set[int]]:
    """The indices of allocations that only one of two streams has.

    First allocations of the same size by the same operator are paired, in order, then,
    between those, allocations of the same size; ``difflib`` finds the common runs.
    """
    a = [index for index, event in enumerate(measured) if event.nbytes > 0]
    b = [index for index, event in enumerate(predicted) if event.nbytes > 0]
    operators = {predicted[index].operator for index in b}
    a_keys = [(measured[i].nbytes, _by(measured[i], operators)) for i in a]
    b_keys = [(predicted[i].nbytes, predicted[i].operator) for i in b]
    extra: set[int] = set()
    missing: set[int] = set()
    for a_low, a_high, b_low, b_high in _gaps(a_keys, b_keys):
        a_sizes = [nbytes for nbytes, _ in a_keys[a_low:a_high]]
        b_sizes = [nbytes for nbytes, _ in b_keys[b_low:b_high]]
        for low, high, other_low, other_high in _gaps(a_sizes, b_sizes):
            extra.update(range(a_low + low, a_low + high))
            missing.update(range(b_low + other_low, b_low + other_high))
    _prefer_short_lives(a_keys, extra, _lives(measured))
    return {a[position] for position in extra}, {b[position] for position in missing}


def _by(event: Event, operators: set[str]) -> str:
    """The innermost operator above an event that a prediction speaks of."""
    for name in reversed(event.path):
        if name in operators:
            return name
    return event.operator


def _gaps(a: list[Any], b: list[Any]) -> Iterator[tuple[int, int, int, int]]:
    """The ranges of ``a`` and ``b`` that have no match in the other."""
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    for tag, a_low, a_high, b_low, b_high in matcher.get_opcodes():
        if tag != "equal":
            yield a_low, a_high, b_low, b_high


def _lives(events: Sequence[Event]) -> list[int]:
    """For each allocation in order, how many events it lives."""
    lives: list[int] = []
    open_: dict[int, tuple[int, int]] = {}
    for index, event in enumerate(events):
        if event.nbytes > 0:
            open_[event.address] = (len(lives), index)
            lives.append(len(events) - index)
        elif event.address in open_:
            position, born = open_.pop(event.address)
            lives[position] = index - born
    return lives


def _prefer_short_lives(keys: list[Any], extra: set[int], lives: list[int]) -> None:
    """Of equal allocations close together, the result outlives the scratch.

    oneDNN's convolution, for one, first allocates the result in its own layout and then
    once more as it is returned: by size and operator alone they can't be told apart.
    """
    for position in sorted(extra):
        near = range(max(0, position - 8), min(len(keys), position + 9))
        equal = [p for p in near if p not in extra and keys[p] == keys[position]]
        shortest = min(equal, key=lambda p: lives[p], default=position)
        if lives[shortest] < lives[position]:
            extra.discard(position)
            extra.add(shortest)


def _by(event: Event, operators: set[str]) -> str:
    """The innermost operator above an event that a prediction speaks of."""
    for name in reversed(event.path):
        if name in operators:
            return name
    return event.operator


def _gaps(a: list[Any], b: list[Any]) -> Iterator[tuple[int, int, int, int]]:
    """The ranges of ``a``, with those of ``b`` beside them, that have no match."""
    matcher = SequenceMatcher(None, a, b, autojunk=False)
    for tag, a_low, a_high, b_low, b_high in matcher.get_opcodes():
        if tag in ("replace", "delete"):
            yield a_low, a_high, b_low, b_high


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


def scratch_of(
    events: Sequence[Event], extra: set[int], peak_index: int, kind: str
) -> list[Scratch]:
    """The unmatched allocations by operator, the ones that matter at the peak first."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    at_peak = _live_at(events, peak_index)
    for index in extra:
        event = events[index]
        row = sums[event.operator]
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
