"""The largest size that fits, from a few traces.

1. Two small sizes are traced. The least that any allocator needs (the live tensors, unrounded)
   grows with the size at least as fast as between these two, so a line through them tells a
   size that can't fit, which is traced too. All between follow (``graphmem.instantiate``).
2. Between is the largest size whose live tensors alone are not too much; none above it can fit.
   From there down every size is asked, until one fits.
3. That size and the next are traced for real. If either is not what was instantiated, the
   search is done again with what is known now.

What fits is not monotonic: kernels take other workspaces, and segments are cut otherwise. So
the answer is the largest size that fits, not the last before the first that does not; smaller
ones that were seen not to fit are ``exceptions``.

Not covered: a model whose live tensors take less at a larger size, and, where more than
``MOST_LOOKED`` sizes lie between what surely and what hardly fits, those further up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from graphmem.errors import GraphmemError, InputError
from graphmem.instantiate import Family, Recorded
from graphmem.largest.memory import Memory, least_bytes, requested_bytes
from graphmem.report import Fit
from graphmem.schedule import Schedule

MOST_LOOKED = 1024
"""Sizes above one that fits of which each is asked: some seconds."""

LARGEST = 1 << 20
"""No batch and no sequence is larger; where even this fits, memory is no limit."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    ``size`` is 0 where not even the smallest fits; ``refusal`` is why the model takes no
    larger one, None where memory is the limit. ``looked_to`` is the size up to which all that
    lie above ``size`` were looked at, or can't fit.
    """

    size: int
    refusal: str | None
    exceptions: tuple[int, ...]
    looked_to: int | None


class Search:
    """A search over the multiples of a step.

    Args:
        trace: runs the model at a size.
        memory: what it has to fit into.
        starts: small sizes to begin with, the better ones first.
        step: only multiples of it are sizes.
        on_trace: is told of each size that is traced.
    """

    def __init__(
        self,
        trace: Callable[[int], Recorded],
        memory: Memory,
        starts: Sequence[int],
        step: int = 1,
        on_trace: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._trace = trace
        self._memory = memory
        self._starts = starts
        self._step = step
        self._on_trace = on_trace
        self._records: dict[int, Recorded] = {}
        self._failed: dict[int, GraphmemError] = {}
        self._fits: dict[int, bool] = {}
        self._family: Family | None = None
        self._lower = 1

    @property
    def traced(self) -> list[int]:
        """The sizes that were traced."""
        return [number * self._step for number in sorted(self._records)]

    @property
    def lowest(self) -> int:
        """The size from which on all follow from the traces."""
        return self._lower * self._step

    @property
    def largest(self) -> int:
        """Where the search ends in any case."""
        return LARGEST * self._step

    def at(self, size: int) -> Schedule:
        """The schedule at a size."""
        return self._schedule(size // self._step)

    def fit(self, size: int) -> Fit:
        """Whether a size fits, and what is left."""
        return self._memory.fit(self.at(size))

    # -- below, sizes are counted in steps

    def find(self) -> Found:
        """The largest size that fits.

        Raises:
            GraphmemError: if the model can't be run at any of the first sizes, or does not
                change with the size, or its parameters alone are too much.
        """
        first, second = self._first_two()
        self._memory.check(self._schedule(first))
        upper = self._upper(first, second)
        known, refusal = self._accepted(min(second, upper), upper)
        while not refusal and known < LARGEST and not self._is_bounded(known):
            known, refusal = self._accepted(known, min(2 * known, LARGEST))
        if known < 1:
            return self._found(0, refusal)
        self._cover(1 if known < first else first, known)
        return self._confirmed(known, refusal)

    def _is_bounded(self, known: int) -> bool:
        """Whether a size that was traced, ``known`` or a larger one, can't fit."""
        return any(n >= known and not self._can_fit(n) for n in self._records)

    def _confirmed(self, upper: int, refusal: str | None) -> Found:
        """The largest, once it and the next are what a trace gives."""
        while True:
            size, looked_to = self._largest(upper)
            checked = [n for n in (size, size + 1) if 1 <= n <= max(upper, 1)]
            confirmed = [self._is_confirmed(number) for number in checked]
            if all(confirmed):
                reached = size == upper
                return self._found(size, refusal if reached else None, looked_to)
            self._cover(min(self._lower, *self._records), upper)

    def _is_confirmed(self, number: int) -> bool:
        """Whether a size's schedule was what a trace gives; from now on it is."""
        expected = self._schedule(number)
        if number in self._records:
            return True
        return self._record(number).schedule == expected

    def _largest(self, upper: int) -> tuple[int, int | None]:
        """The largest that fits of those below, and up to where all were looked at."""
        lower = self._lower
        top = _last(lower, upper + 1, self._can_fit)
        low = _last(lower, top + 1, self._does_fit)
        highest = min(top, low + MOST_LOOKED)
        size = next((n for n in range(highest, low, -1) if self._does_fit(n)), low)
        if size < lower and lower > 1:
            self._cover(1, upper)
            return self._largest(upper)
        return size, None if highest == top else highest

    def _can_fit(self, number: int) -> bool:
        return least_bytes(self._schedule(number)) <= self._memory.allowed_bytes

    def _does_fit(self, number: int) -> bool:
        if number not in self._fits:
            schedule = self._schedule(number)
            enough = requested_bytes(schedule) <= self._memory.allowed_bytes
            self._fits[number] = enough and self._memory.fits(schedule)
        return self._fits[number]

    def _schedule(self, number: int) -> Schedule:
        if number in self._records:
            return self._records[number].schedule
        if self._family is None:
            return self._record(number).schedule
        return self._family.at(number)

    def _record(self, number: int) -> Recorded:
        if number in self._failed:
            raise self._failed[number]
        if number not in self._records:
            self._on_trace(number * self._step)
            try:
                self._records[number] = self._trace(number * self._step)
            except GraphmemError as error:
                self._failed[number] = error
                raise
            self._fits.pop(number, None)
        return self._records[number]

    def _cover(self, lower: int, upper: int) -> None:
        """From now on the schedules of a range follow from what was traced."""
        self._fits.clear()
        self._lower = lower
        self._family = Family(self._record, range(lower, upper + 1), self._records)

    def _first_two(self) -> tuple[int, int]:
        """Two small sizes that the model takes, traced.

        Raises:
            InputError: if its run is the same at both.
        """
        found: list[int] = []
        for number in dict.fromkeys(-(-size // self._step) for size in self._starts):
            if self._is_taken(number):
                found.append(number)
            if len(found) == 2:
                break
        if len(found) < 2:
            raise next(iter(self._failed.values()))
        first, second = sorted(found)
        if self._schedule(first) == self._schedule(second):
            sizes = f"{first * self._step} and {second * self._step}"
            raise InputError(f"the run is the same at {sizes}: nothing of it has this dimension")
        return first, second

    def _is_taken(self, number: int) -> bool:
        try:
            self._record(number)
        except GraphmemError:
            return False
        return True

    def _upper(self, first: int, second: int) -> int:
        """A size that is too large, as far as two can tell; 0 if not even one may fit."""
        allowed = self._memory.allowed_bytes
        low, high = (least_bytes(self._schedule(number)) for number in (first, second))
        if low > allowed:
            return first - 1
        if high > allowed:
            return second
        if high <= low:
            return LARGEST
        return min(second + (allowed - high) * (second - first) // (high - low) + 1, LARGEST)

    def _accepted(self, known: int, wanted: int) -> tuple[int, str | None]:
        """The largest size up to ``wanted`` that the model takes, and why it takes no more."""
        if self._is_taken(wanted):
            return wanted, None
        best = _last(known, wanted, self._is_taken)
        return best, str(self._failed[min(n for n in self._failed if n > best)])

    def _found(self, number: int, refusal: str | None, looked_to: int | None = None) -> Found:
        step = self._step
        below = sorted(n for n, fits in self._fits.items() if not fits and n < number)
        reached = None if looked_to is None else looked_to * step
        return Found(number * step, refusal, tuple(n * step for n in below), reached)


def _last(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The last number below ``high`` for which something holds, if it does up to there.

    ``low - 1`` where it does not hold for ``low``.
    """
    if low >= high or not holds(low):
        return low - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


_LENGTH_STEP = 64
"""Attention pads rows to 8 and its statistics to 32 (``targets.cuda``); matrix products are
fastest at 64 and more."""


def default_step(dimension: str) -> int:
    """The sizes that are tried: of a batch all, of a length the multiples of 64."""
    return 1 if dimension == "batch" else _LENGTH_STEP


def first_sizes(dimension: str) -> Iterator[int]:
    """Sizes to begin with: of a batch small ones, of a length those beyond special kernels."""
    yield from (2, 4, 8, 16) if dimension == "batch" else (64, 128, 256, 32, 16, 8, 4, 2)
