"""The cheapest combinations of techniques that fit, from as few traces as may be.

1. The run as it is is traced first. Of it ``bound`` tells which combinations can't fit.
2. The others are tried in the order of their cost: by the worst that they lose, then by how many
   they are, then by the order of the techniques. One that has another within it that fits is
   left out: it costs more for nothing.
3. Where every block is checkpointed in one that fits, the cheapest set of blocks that still does
   is found (``checkpoints``), and traced.
4. The search ends with ``enough`` combinations, or with the time; a trace that has begun is
   finished.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from graphmem import parallelism, techniques
from graphmem.allocator import parse_alloc_conf, place
from graphmem.errors import GraphmemError, UsageError, one_line
from graphmem.largest.memory import Memory, requested_bytes
from graphmem.options import Options
from graphmem.plans.blocks import compact
from graphmem.plans.bound import Bound
from graphmem.plans.candidates import checkpointing
from graphmem.plans.checkpoints import best_set
from graphmem.plans.technique import Run, Technique
from graphmem.report import Fit, Peak
from graphmem.schedule import Schedule
from graphmem.summary import peak_and_breakdown

Trace = Callable[[Options, int], Schedule]
"""A run with some options and its batch cut into so many parts."""

MOST_TOGETHER = 4
_TRIES = 3
"""How often a set of blocks is asked for again, with less memory."""


@dataclass(frozen=True)
class Tried:
    """A combination that was traced; ``flops`` are a step's, and those of recomputation."""

    techniques: tuple[Technique, ...]
    options: Options
    peak: Peak
    fit: Fit
    flops: tuple[int, int]


@dataclass(frozen=True)
class Searched:
    """What a search found: those that fit and those that do not, in the order of their cost.

    ``impossible`` combinations were left out by the bound; ``failed`` are those whose run can't
    be traced, and why. ``rest`` is how many were not tried when the search ended.
    """

    base: Tried
    fitting: tuple[Tried, ...]
    others: tuple[Tried, ...]
    failed: tuple[tuple[tuple[Technique, ...], str], ...]
    impossible: int
    rest: int


class Search:
    """One search.

    Args:
        trace: runs the model.
        memory: what it has to fit into.
        enough: how many combinations are wanted.
        seconds: after so many no trace begins.
        on_trace: is told of each that begins.
    """

    def __init__(
        self,
        trace: Trace,
        memory: Memory,
        enough: int,
        seconds: float,
        on_trace: Callable[[str], None],
    ) -> None:
        self._trace = trace
        self._memory = memory
        self._enough = enough
        self._end = time.monotonic() + seconds
        self._on_trace = on_trace
        self._schedules: dict[tuple[Options, int], Schedule] = {}
        self._failed: list[tuple[tuple[Technique, ...], str]] = []

    def base(self) -> tuple[Tried, Schedule]:
        """The run as it is.

        Raises:
            GraphmemError: as the trace raises it.
        """
        return self._tried((), self._memory.options), self._schedule((), self._memory.options)

    def find(self, base: Tried, run: Run, candidates: Sequence[Technique]) -> Searched:
        """The combinations that fit."""
        tried, bounds, impossible, rest = [base], [Bound(run.schedule)], 0, 0
        fewer: list[Tried] = []
        for combination in sorted(_combinations(candidates), key=_cost):
            options = _changed(self._memory.options, combination)
            if options is None:
                continue
            if any(one.fit.fits and _is_within(one, combination) for one in tried):
                continue
            if not self._may_fit(combination, tried, bounds):
                impossible += 1
            elif sum(one.fit.fits for one in tried) >= self._enough or self._is_over():
                rest += 1
            else:
                for one, schedule in self._attempt(combination, options):
                    tried.append(one)
                    bounds.append(Bound(schedule))
                    fewer += self._with_fewer_blocks(one, run) if not fewer else ()
        tried += fewer
        best = sorted((one for one in tried[1:] if one.fit.fits), key=_cost_of)
        others = [one for one in tried[1:] if not one.fit.fits]
        failed = tuple(self._failed)
        return Searched(base, tuple(best), tuple(others), failed, impossible, rest)

    def _may_fit(
        self,
        combination: tuple[Technique, ...],
        tried: Sequence[Tried],
        bounds: Sequence[Bound],
    ) -> bool:
        """Whether a combination may fit, by the bounds of what was traced and is within it."""
        for one, bound in zip(tried, bounds, strict=True):
            names = {t.name for t in one.techniques}
            added = [t for t in combination if t.name not in names]
            is_within = len(added) + len(names) == len(combination)
            if is_within and bound.bytes_of(added) > self._memory.allowed_bytes:
                return False
        return True

    def _is_over(self) -> bool:
        return time.monotonic() > self._end

    def _attempt(
        self, combination: tuple[Technique, ...], options: Options
    ) -> Iterator[tuple[Tried, Schedule]]:
        """A combination, traced; nothing of one that can't be."""
        try:
            yield self._tried(combination, options), self._schedule(combination, options)
        except GraphmemError as error:
            self._failed.append((combination, one_line(error)))

    def _tried(self, combination: tuple[Technique, ...], options: Options) -> Tried:
        schedule = self._schedule(combination, options)
        peak, fit = judged(schedule, replace(self._memory, options=options))
        return Tried(combination, options, peak, fit, schedule.flops)

    def _schedule(self, combination: tuple[Technique, ...], options: Options) -> Schedule:
        """The schedule, which the allocator's settings do not change."""
        parts = 1
        for technique in combination:
            parts *= technique.micro_batches
        key = (replace(options, alloc_conf=self._memory.options.alloc_conf), parts)
        if key not in self._schedules:
            self._on_trace(" + ".join(t.name for t in combination) or "as it is")
            self._schedules[key] = self._trace(options, parts)
        return self._schedules[key]

    def _with_fewer_blocks(self, one: Tried, run: Run) -> Iterator[Tried]:
        """One that fits with every block checkpointed, with as few as suffice."""
        without = tuple(t for t in one.techniques if t.name != checkpointing.NAME)
        if one.fit.fits and len(without) < len(one.techniques) and not self._is_over():
            yield from self._fewer_blocks(without, run)

    def _fewer_blocks(self, without: tuple[Technique, ...], run: Run) -> Iterator[Tried]:
        options = _changed(self._memory.options, without)
        assert options is not None  # with the checkpoints it goes together
        schedule = self._schedule(without, options)
        allowed = self._memory.allowed_bytes
        for _ in range(_TRIES):
            chosen = best_set(schedule, run.blocks, allowed)
            if not chosen or len(chosen) == len(run.blocks):
                return
            name = f"checkpoint {len(chosen)} of {len(run.blocks)} blocks"
            combination = (*without, checkpointing.technique(name, compact(chosen)))
            changed = _changed(self._memory.options, combination)
            assert changed is not None
            for one, _ in self._attempt(combination, changed):
                if one.fit.fits:
                    yield one
                    return
                allowed += one.fit.headroom_bytes  # negative: what it lacks
            if self._is_over():
                return


def judged(schedule: Schedule, memory: Memory) -> tuple[Peak, Fit]:
    """The peak of a run, and whether it fits.

    Where it would take no more than there is, or its live tensors alone are too much, its
    segments without a limit tell all; only between is the limit simulated. So of a run that is
    far too large the peak is that without a limit, and what it lacks is what surely is enough.
    """
    settings = parse_alloc_conf(memory.options.alloc_conf or "")
    free = place(schedule, lambda storage: not storage.host, settings)
    peak, _ = peak_and_breakdown(schedule, memory.options, free)
    spare = memory.allowed_bytes - max(free.reserved_bytes)
    if spare >= 0 or requested_bytes(schedule) > memory.allowed_bytes:
        return peak, Fit(memory.name, spare >= 0, spare, None)
    return memory.peak(schedule)[0], memory.fit(schedule)


def _combinations(candidates: Sequence[Technique]) -> Iterator[tuple[Technique, ...]]:
    for count in range(1, MOST_TOGETHER + 1):
        for combination in combinations(candidates, count):
            changed = [name for technique in combination for name in technique.change]
            if _go_together(combination, changed):
                yield combination


def _go_together(combination: Sequence[Technique], changed: Sequence[str]) -> bool:
    """Whether no option is changed twice, but for those that one sets back."""
    values: dict[str, set[Any]] = {}
    for technique in combination:
        for name, value in technique.change.items():
            values.setdefault(name, set()).add(value)
    return len(set(changed)) == len(changed) or all(len(v) == 1 for v in values.values())


def _changed(options: Options, combination: Iterable[Technique]) -> Options | None:
    """The options with a combination's changes; None where they do not go together."""
    for technique in combination:
        options = replace(options, **technique.change)
    try:
        techniques.check(options)
        parallelism.check(options)
    except UsageError:
        return None
    return options


def _cost(combination: Sequence[Technique]) -> tuple[int, int, list[int]]:
    losses = sorted((int(technique.loses) for technique in combination), reverse=True)
    return losses[0] if losses else 0, len(combination), losses


def _cost_of(one: Tried) -> tuple[int, int, list[int], float]:
    """As ``_cost``; of equal ones that with less recomputation is the cheaper."""
    whole, again = one.flops
    return *_cost(one.techniques), again / max(whole, 1)


def _is_within(one: Tried, combination: Sequence[Technique]) -> bool:
    """Whether a combination has all of another, or stronger ones."""
    return all(any(t.is_within(other) for other in combination) for t in one.techniques)
