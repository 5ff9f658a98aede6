"""The cheapest combinations of techniques that fit, from as few traces as may be.

1. The run as it is is traced first. Of it ``bound`` tells which combinations can't fit.
2. The others are tried in the order of their cost: by the worst that they lose, then by how many
   they are, then by the order of the techniques; of the same worst loss those first that likely
   fit. One that has another within it that fits is left out: it costs more for nothing.
3. Each loss that is the worst of some has an equal share of the time, so that the dearer ones
   are tried too where many of the cheaper do not fit.
4. Where every block is checkpointed in one that fits, the cheapest set of blocks that still does
   is found (``checkpoints``), and traced; of the first such one. What is left of the time is for
   all again.
5. The search ends with ``enough`` combinations that lose no more than what would be tried next,
   or with the time; a trace that has begun is finished, and what takes no trace is tried still.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from graphmem import parallelism, techniques
from graphmem.allocator import parse_alloc_conf, place
from graphmem.errors import GraphmemError, UsageError, one_line
from graphmem.largest.memory import Memory, least_bytes, requested_bytes
from graphmem.options import Options
from graphmem.plans.blocks import compact
from graphmem.plans.bound import Bound, Scope
from graphmem.plans.candidates import checkpointing
from graphmem.plans.checkpoints import best_set
from graphmem.plans.technique import Run, Technique
from graphmem.report import Fit, Peak
from graphmem.schedule import Schedule
from graphmem.sources.packages import missing
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


@dataclass(frozen=True)
class Known:
    """What was traced, and what it tells of combinations that have it within."""

    tried: Tried
    bound: Bound


Asked = tuple[Technique, ...]
"""A combination."""


class Search:
    """One search.

    Args:
        trace: runs the model.
        memory: what it has to fit into.
        enough: how many combinations are wanted.
        seconds: after so many no trace begins.
        on_trace: is told of each that begins.
        clock: the time, in seconds.
    """

    def __init__(
        self,
        trace: Trace,
        memory: Memory,
        enough: int,
        seconds: float,
        on_trace: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trace = trace
        self._memory = memory
        self._enough = enough
        self._allowed = memory.allowed_bytes
        self._clock = clock
        self._end = clock() + seconds
        self._on_trace = on_trace
        self._schedules: dict[tuple[Options, int], Schedule] = {}
        self._failed: list[tuple[tuple[Technique, ...], str]] = []
        self._is_thinned = False

    def base(self) -> tuple[Tried, Schedule]:
        """The run as it is.

        Raises:
            GraphmemError: as the trace raises it.
        """
        options = self._memory.options
        schedule = self._schedule((), options)
        # As analyze says it: what a run that is far too large lacks is simulated too.
        peak, fit = self._memory.peak(schedule)[0], self._memory.fit(schedule)
        return Tried((), options, peak, fit, schedule.flops), schedule

    def find(self, base: Tried, run: Run, candidates: Sequence[Technique]) -> Searched:
        """The combinations that fit."""
        candidates = [t for t in candidates if not self._lacks_package(t)]
        scopes = list(dict.fromkeys(t.scope for t in candidates if t.scope is not None))
        known = [Known(base, Bound(run.schedule, scopes))]
        waiting, impossible = self._possible(candidates, known[0])
        losses = sorted({_cost(combination)[0] for combination in waiting})
        fewer: list[Tried] = []
        for left, loss in zip(range(len(losses), 0, -1), losses, strict=True):
            of_loss = [one for one in waiting if _cost(one)[0] == loss]
            impossible += self._try(of_loss, waiting, known, scopes, self._share(left))
            fewer = fewer or self._with_fewer_blocks([one.tried for one in known], run)
        impossible += self._try(list(waiting), waiting, known, scopes, self._end)
        tried = [*(one.tried for one in known[1:]), *fewer]
        fitting = [one for one in tried if one.fit.fits]
        best = sorted((one for one in fitting if not _is_dearer(one, fitting)), key=_cost_of)
        others = [one for one in tried if not one.fit.fits]
        rest = [one for one in waiting if not _has_one_that_fits(one, known)]
        bounded = [one for one in rest if not self._may_fit(one, known[1:])]
        return Searched(
            base,
            tuple(best),
            tuple(others),
            tuple(self._failed),
            impossible + len(bounded),
            len(rest) - len(bounded),
        )

    def _lacks_package(self, technique: Technique) -> bool:
        lacking = None if technique.needs is None else missing(technique.needs)
        if lacking is not None:
            self._failed.append(((technique,), lacking))
        return lacking is not None

    def _possible(self, candidates: Sequence[Technique], base: Known) -> tuple[list[Asked], int]:
        """The combinations that may fit, the cheapest first, and how many can't."""
        possible: list[tuple[bool, Asked]] = []
        impossible = 0
        for combination in sorted(_combinations(candidates, self._memory.options), key=_cost):
            may_fit = self._may_fit(combination, [base])
            impossible += not may_fit
            if may_fit:
                unlikely = base.bound.likely_bytes_of(combination) > self._allowed
                possible.append((unlikely, combination))
        possible.sort(key=lambda one: (_cost(one[1])[0], one[0]))  # else the order stays
        return [asked for _, asked in possible], impossible

    def _share(self, parts: int) -> float:
        """When one of so many parts of the time that is left has passed."""
        now = self._clock()
        return now + (self._end - now) / parts

    def _try(
        self,
        asked: Sequence[Asked],
        waiting: list[Asked],
        known: list[Known],
        scopes: Sequence[Scope],
        end: float,
    ) -> int:
        """Trace combinations until a time, or until there are enough; they wait no longer.

        Returns:
            How many were seen not to fit, without a trace.
        """
        impossible = 0
        for combination in asked:
            if self._has_enough(known, combination):
                break
            is_late = self._clock() > end and len(known) > 1  # one is tried in any case
            if is_late and not any("alloc_conf" in t.change for t in combination):
                continue
            options = _changed(self._memory.options, combination)
            if options is None:
                waiting.remove(combination)
                continue
            if is_late and self._key(combination, options) not in self._schedules:
                continue
            waiting.remove(combination)
            if _has_one_that_fits(combination, known):
                continue
            if not self._may_fit(combination, known):
                impossible += 1
                continue
            for one, schedule in self._attempt(combination, options):
                known.append(Known(one, Bound(schedule, scopes)))
        return impossible

    def _has_enough(self, known: Sequence[Known], combination: tuple[Technique, ...]) -> bool:
        """Whether as many fit as are wanted, none of which loses worse than a combination."""
        fitting = [one.tried.techniques for one in known if one.tried.fit.fits]
        loss = _cost(combination)[0]
        return sum(_cost(one)[0] <= loss for one in fitting) >= self._enough

    def _may_fit(self, combination: tuple[Technique, ...], known: Sequence[Known]) -> bool:
        """Whether a combination may fit, by the bounds of what was traced and is within it."""
        for one in known:
            names = {t.name for t in one.tried.techniques}
            added = [t for t in combination if t.name not in names]
            is_within = len(added) + len(names) == len(combination)
            if is_within and one.bound.bytes_of(added) > self._allowed:
                return False
        return True

    def _is_over(self) -> bool:
        return self._clock() > self._end

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
        key = self._key(combination, options)
        if key not in self._schedules:
            self._on_trace(" + ".join(t.name for t in combination) or "as it is")
            self._schedules[key] = self._trace(options, key[1])
        return self._schedules[key]

    def _key(self, combination: tuple[Technique, ...], options: Options) -> tuple[Options, int]:
        """What a schedule depends on: the options but for the allocator's, and the parts."""
        parts = 1
        for technique in combination:
            parts *= technique.micro_batches
        return replace(options, alloc_conf=self._memory.options.alloc_conf), parts

    def _with_fewer_blocks(self, tried: Sequence[Tried], run: Run) -> list[Tried]:
        """The cheapest that fits with every block checkpointed, with as few as suffice."""
        for one in sorted(tried, key=_cost_of):
            without = tuple(t for t in one.techniques if t.name != checkpointing.NAME)
            if one.fit.fits and len(without) < len(one.techniques) and not self._is_thinned:
                self._is_thinned = True
                return list(self._fewer_blocks(one, without, run))
        return []

    def _fewer_blocks(
        self, every: Tried, without: tuple[Technique, ...], run: Run
    ) -> Iterator[Tried]:
        """As few blocks as suffice, where every one of them is enough.

        Beside its live tensors a run is taken to need as much as with every block.
        """
        options = _changed(self._memory.options, without)
        if self._is_over():
            return
        assert options is not None  # with the checkpoints it goes together
        schedule = self._schedule(without, options)
        live = least_bytes(self._schedule(every.techniques, every.options))
        allowed = live + every.fit.headroom_bytes
        for _ in range(_TRIES):
            if self._is_over():
                return
            chosen = best_set(schedule, run.blocks, allowed)
            if not chosen or len(chosen) == len(run.blocks):
                return
            name = f"checkpoint {len(chosen)} of {len(run.blocks)} blocks"
            combination = (*without, checkpointing.technique(name, compact(chosen), run))
            changed = _changed(self._memory.options, combination)
            assert changed is not None
            for one, _ in self._attempt(combination, changed):
                if one.fit.fits:
                    yield one
                    return
                allowed += one.fit.headroom_bytes  # negative: what it lacks


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


def _combinations(
    candidates: Sequence[Technique], options: Options
) -> Iterator[tuple[Technique, ...]]:
    """All that go together two by two, of up to ``MOST_TOGETHER``, the smaller ones first."""
    alone = {one.name for one in candidates if _changed(options, (one,)) is not None}
    partners = {
        one.name: frozenset(
            other.name
            for other in candidates[place:]
            if _go_together(one, other)
            and (not {one.name, other.name} <= alone or _changed(options, (one, other)) is not None)
        )
        for place, one in enumerate(candidates, start=1)
    }
    current: list[tuple[Technique, ...]] = [(one,) for one in candidates]
    for _ in range(MOST_TOGETHER):
        yield from current
        current = [
            (*combination, other)
            for combination in current
            for other in candidates
            if all(other.name in partners[one.name] for one in combination)
        ]


def _go_together(one: Technique, other: Technique) -> bool:
    """Whether no option gets two values, and the two are not in each other's place."""
    if (one.family and one.family == other.family) or (one.apart and one.apart == other.apart):
        return False
    both = one.change.keys() & other.change.keys()
    return all(one.change[name] == other.change[name] for name in both)


def _changed(options: Options, combination: Iterable[Technique]) -> Options | None:
    """The options with a combination's changes; None where they do not go together."""
    changes = {name: v for technique in combination for name, v in technique.change.items()}
    options = replace(options, **changes)
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


def _has_one_that_fits(combination: Sequence[Technique], known: Sequence[Known]) -> bool:
    return any(one.tried.fit.fits and _is_within(one.tried, combination) for one in known)


def _is_dearer(one: Tried, fitting: Sequence[Tried]) -> bool:
    """Whether another one that fits is within one."""
    return any(other is not one and _is_within(other, one.techniques) for other in fitting)
