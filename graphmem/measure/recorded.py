"""A prediction beside a recorded snapshot: their peaks, and which allocations have a partner.

1. The predicted requests are those of the schedule in its order: what stands in memory
   before the first operation (loading), then of each operation its results and the blocks of
   its scratch. The recorded ones are the ``alloc`` events, by their requested bytes.
2. A snapshot may begin and end anywhere. What it holds is taken to be some steps of the
   prediction in a row, the last of them as often as one likes: the ones whose bytes are
   matched best, of both sides together.
3. Requests of the same size and the same operator are aligned first, then in between those
   of the same size; a recorded operator is known where the stack has C++ frames. Overloads
   are one operator: ``mul.Scalar`` calls ``mul.Tensor``. Both times it is one of the longest
   common subsequences. What is left of an operation is then paired with what is left between
   its neighbours, in any order: in which order a kernel makes its results and its scratch, or
   a model is loaded, is no difference.
4. The *resting level* is what is allocated before the first matched request of the step in
   which the peak lies.

What has no partner is told by where it comes from. Recorded bytes are those of the file
alone (``snapshots.peaks``), predicted ones those of the report.

Not covered: other streams than one; steps that differ from each other in the recording.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

from graphmem.allocator import AllocatorSettings, place
from graphmem.errors import ModelLoadError
from graphmem.measure.align import Pairs, common
from graphmem.report import Report
from graphmem.schedule import BEFORE, Operation, Schedule, Storage
from graphmem.snapshots import (
    Action,
    DeviceTrace,
    Site,
    Sites,
    Snapshot,
    allocated_levels,
    has_segments,
    recorded_reserved,
    starting_segments,
)

LOADING = 0
"""The number of what stands in memory before the first step."""

SCRATCH = "scratch"

_MOST_ALIGNED = 12
"""How many candidates are aligned at most, the likeliest first: long recordings take seconds."""

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a request comes from; what one side does not know is None.

    ``op`` is ``aten.mul.Tensor`` as predicted and ``aten.mul_Tensor`` as recorded. ``module``
    has ``*`` for every number, so that the layers of a model are one. ``kernel`` is the C++
    function that asked for scratch as recorded, and ``SCRATCH`` as predicted.
    """

    op: str | None
    module: str | None
    source: str | None
    function: str | None = None
    kernel: str | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One allocation. ``at`` is its event, or its operation (``BEFORE``: loading).

    ``name`` is the operator's without its overload, None if it is not known.
    """

    nbytes: int
    at: int
    origin: Origin
    name: str | None


@dataclass(frozen=True, slots=True)
class Side:
    """What one side has: peaks, the level before the peak's step, and its requests.

    ``step`` is the step of the prediction in which its peak lies.
    """

    allocated_bytes: int
    reserved_bytes: int | None
    resting_bytes: int
    step: int
    requests: int
    requested_bytes: int
    matched_requests: int
    matched_bytes: int


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Requests of one origin that the other side does not have; ``largest_bytes`` of one."""

    bytes: int
    requests: int
    largest_bytes: int
    origin: Origin


@dataclass(frozen=True, slots=True)
class Comparison:
    """A prediction beside a device of a snapshot.

    ``steps`` are the steps of the prediction that the recording was matched with, in order
    (``LOADING`` is what stands in memory before them).
    """

    device: int
    steps: tuple[int, ...]
    recorded: Side
    predicted: Side
    only_recorded: tuple[Unmatched, ...]
    only_predicted: tuple[Unmatched, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; ``difference`` is recorded minus predicted, as in ``verify``."""
        recorded, predicted = asdict(self.recorded), asdict(self.predicted)
        names = ("allocated_bytes", "reserved_bytes", "resting_bytes")
        return {
            "device": self.device,
            "steps": list(self.steps),
            "recorded": recorded,
            "predicted": predicted,
            "difference": {name: _less(recorded[name], predicted[name]) for name in names},
            "only_recorded": [_row(row) for row in self.only_recorded],
            "only_predicted": [_row(row) for row in self.only_predicted],
        }


def _less(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left - right


def _row(row: Unmatched) -> dict[str, Any]:
    sizes = {"bytes": row.bytes, "requests": row.requests, "largest_bytes": row.largest_bytes}
    return sizes | asdict(row.origin)


def compare(
    schedule: Schedule,
    report: Report,
    settings: AllocatorSettings,
    snapshot: Snapshot,
) -> Comparison:
    """A prediction beside a snapshot; of several devices the one that is matched best.

    Args:
        report: that of the schedule.
        settings: those that the report was made with.

    Raises:
        ModelLoadError: if the snapshot has no allocations.
    """
    predicted = _by_step(schedule)
    names = _Names(request.name for step in predicted for request in step)
    requests = [(_requests_of(trace, names), trace) for trace in snapshot.devices]
    found = [(_best(recorded, predicted), trace) for recorded, trace in requests if recorded]
    if not found:
        raise ModelLoadError("no allocations were recorded: nothing to compare with")
    matching, trace = max(found, key=lambda pair: pair[0].score)
    prediction = _Prediction(schedule, report, settings)
    return _compared(matching, trace, snapshot.settings, prediction)


# -- 1. requests


class _Names:
    """The operators of a prediction, as recorded stacks name them."""

    def __init__(self, names: Iterable[str | None]) -> None:
        self._names = set(names)
        self._known: dict[str | None, str | None] = {None: None}

    def of(self, op: str | None) -> str | None:
        """The predicted operator that ``aten.mul_Tensor`` is an overload of: ``aten.mul``.

        C++ joins both with an underscore, which either may have itself: the longest is meant.
        """
        if op not in self._known:
            parts = op.split("_") if op else []
            starts = ("_".join(parts[:end]) for end in range(len(parts), 0, -1))
            self._known[op] = next((start for start in starts if start in self._names), op)
        return self._known[op]


def _requests_of(trace: DeviceTrace, names: _Names) -> list[Request]:
    sites = Sites()
    return [
        _recorded(entry.size, index, sites.of(entry.frames), names)
        for index, entry in enumerate(trace.entries)
        if entry.action is Action.ALLOC
    ]


def _recorded(nbytes: int, event: int, site: Site, names: _Names) -> Request:
    origin = Origin(site.op, None, site.source, site.function, site.kernel, site.node)
    return Request(nbytes, event, origin, names.of(site.op))


def _by_step(schedule: Schedule) -> list[list[Request]]:
    """The predicted requests of each step; the first are those of loading."""
    loaded = [s for s in schedule.storages if s.born == BEFORE and s.nbytes and not s.host]
    steps = [[_loading(storage) for storage in loaded]] + [[] for _ in range(schedule.steps)]
    for op in schedule.operations:
        steps[op.step] += _requests(schedule, op)
    return steps


def _loading(storage: Storage) -> Request:
    return Request(storage.nbytes, BEFORE, Origin(None, _pattern(storage.module), None), None)


def _requests(schedule: Schedule, op: Operation) -> Iterator[Request]:
    origin = Origin(op.target, _pattern(op.module), op.source)
    name = ".".join(op.target.split(".")[:2])
    for storage in (schedule.storages[i] for i in op.allocates):
        if storage.nbytes and not storage.host:
            yield Request(storage.nbytes, op.index, origin, name)
    for nbytes in (n for stage in op.scratch for n in stage if n):
        yield Request(nbytes, op.index, replace(origin, kernel=SCRATCH), name)


def _pattern(module: str) -> str:
    return _NUMBER.sub("*", f".{module}")[1:]


# -- 2. which steps


@dataclass(frozen=True, slots=True)
class _Matching:
    """Recorded requests, predicted ones of some steps, and pairs of their indices.

    ``starts[k]`` is the index of the first request of ``steps[k]``.
    """

    steps: tuple[int, ...]
    starts: tuple[int, ...]
    recorded: list[Request]
    predicted: list[Request]
    pairs: Pairs

    @property
    def score(self) -> float:
        """The share of both sides' bytes that have a partner."""
        matched = sum(self.recorded[i].nbytes for i, _ in self.pairs)
        return _share(matched, _total(self.recorded) + _total(self.predicted))


def _share(matched: int, whole: int) -> float:
    return 2 * matched / whole if whole else 0.0


def _total(requests: Iterable[Request]) -> int:
    return sum(request.nbytes for request in requests)


def _best(recorded: list[Request], steps: Sequence[list[Request]]) -> _Matching:
    """The best matching; a candidate is aligned only if its sizes alone could beat the others."""
    sizes = Counter(request.nbytes for request in recorded)
    counts = [Counter(request.nbytes for request in step) for step in steps]
    ranked = sorted(
        ((_bound(sizes, counts, choice), choice) for choice in _choices(len(recorded), steps)),
        key=lambda pair: (-pair[0], len(pair[1])),
    )
    best: _Matching | None = None
    for bound, choice in ranked[:_MOST_ALIGNED]:
        if best is not None and bound <= best.score:
            break
        matching = _match(recorded, steps, choice)
        if best is None or matching.score > best.score:
            best = matching
    assert best is not None  # there is a choice for every step, and there are steps
    return best


def _choices(recorded: int, steps: Sequence[list[Request]]) -> Iterator[tuple[int, ...]]:
    """All runs of steps, and those to the end with the last one repeated."""
    last = len(steps) - 1
    for first in range(len(steps)):
        yield from (tuple(range(first, end + 1)) for end in range(max(first, 1), last + 1))
        so_far = sum(len(step) for step in steps[first:])
        repeats = -(-max(0, recorded - so_far) // max(1, len(steps[last])))
        yield from ((*range(first, last), *[last] * (1 + n)) for n in range(1, repeats + 1))


def _bound(sizes: Counter[int], counts: Sequence[Counter[int]], choice: tuple[int, ...]) -> float:
    """What the score would be if order did not matter."""
    predicted: Counter[int] = Counter()
    for step, times in Counter(choice).items():
        for nbytes, count in counts[step].items():
            predicted[nbytes] += count * times
    matched = sum(n * min(count, sizes[n]) for n, count in predicted.items())
    whole = sum(n * count for table in (sizes, predicted) for n, count in table.items())
    return _share(matched, whole)


# -- 3. pairs


def _match(
    recorded: list[Request], steps: Sequence[list[Request]], choice: tuple[int, ...]
) -> _Matching:
    predicted: list[Request] = []
    starts = []
    for step in choice:
        starts.append(len(predicted))
        predicted += steps[step]
    return _Matching(choice, tuple(starts), recorded, predicted, _paired(recorded, predicted))


def _paired(a: list[Request], b: list[Request]) -> Pairs:
    """Pairs of the same size, by the index in ``b``."""
    pairs: Pairs = []
    for left, right in _gaps(common([*map(_named, a)], [*map(_named, b)]), (len(a), len(b))):
        sizes = [a[i].nbytes for i in left], [b[j].nbytes for j in right]
        pairs += [(left[x], right[y]) for x, y in common(*sizes)]
        pairs += [(left.stop, right.stop)]
    pairs.pop()  # the two ends
    return sorted([*pairs, *_in_any_order(a, b, pairs)], key=lambda pair: pair[1])


def _gaps(pairs: Pairs, ends: tuple[int, int]) -> Iterator[tuple[range, range]]:
    """The indices between two pairs, before the first and after the last, on both sides."""
    i = j = 0
    for left, right in [*pairs, ends]:
        yield range(i, left), range(j, right)
        i, j = left + 1, right + 1


def _in_any_order(a: list[Request], b: list[Request], pairs: Pairs) -> Iterator[tuple[int, int]]:
    """Pairs of what is left of each operation of ``b``, and between its neighbours in ``a``."""
    lefts, rights = [i for i, _ in pairs], [j for _, j in pairs]
    taken, matched = set(lefts), set(rights)
    region, open_ = range(0), dict[int, list[int]]()
    for block in _operations(b):
        left = [j for j in block if j not in matched]
        if not left:
            continue
        first, last = bisect_left(rights, block.start), bisect_left(rights, block.stop)
        around = range(
            lefts[first - 1] + 1 if first else 0, lefts[last] if last < len(lefts) else len(a)
        )
        if around != region:
            region, open_ = around, _by_size(a, (i for i in around if i not in taken))
        for j in left:
            same = open_.get(b[j].nbytes, [])
            i = next((i for i in same if a[i].name in (None, b[j].name) or not b[j].name), None)
            if i is not None:
                same.remove(i)
                taken.add(i)
                yield i, j


def _operations(b: list[Request]) -> Iterator[range]:
    """The indices of each operation's requests; loading is one operation."""
    start = 0
    for _, requests in groupby(b, key=lambda request: request.at):
        stop = start + sum(1 for _ in requests)
        yield range(start, stop)
        start = stop


def _by_size(requests: list[Request], indices: Iterable[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for index in indices:
        found.setdefault(requests[index].nbytes, []).append(index)
    return found


def _named(request: Request) -> Hashable | None:
    """The size and the operator; None where it is not known, which is equal to nothing."""
    return None if request.name is None else (request.nbytes, request.name)


# -- 4. both sides


class _Prediction:
    """The predicted bytes: peaks from the report, levels from the blocks of the schedule."""

    def __init__(self, schedule: Schedule, report: Report, settings: AllocatorSettings) -> None:
        self._schedule = schedule
        self._blocks = place(schedule, lambda s: not s.host, settings).block_bytes
        self.steps = {step.step: step for step in report.steps}

    def before(self, index: int) -> int:
        """The bytes allocated before an operation."""
        return sum(
            self._blocks[s.id]
            for s in self._schedule.storages
            if s.born < index and (s.freed is None or s.freed >= index)
        )


def _compared(
    matching: _Matching, trace: DeviceTrace, recorded: AllocatorSettings, prediction: _Prediction
) -> Comparison:
    levels = allocated_levels(trace, recorded)
    peak = max(levels)
    lies_in = _instance_of(matching, levels.index(peak) - 1)
    highest = _highest(matching, prediction)
    step = prediction.steps[matching.steps[highest]]
    i, j = _first_pair(matching, lies_in), _first_pair(matching, highest)
    reserved = None
    if has_segments(trace):
        reserved = recorded_reserved(trace, starting_segments(trace, recorded))
    partners = {i for i, _ in matching.pairs}, {j for _, j in matching.pairs}
    return Comparison(
        device=trace.device,
        steps=matching.steps,
        recorded=_side(
            matching.recorded,
            partners[0],
            (peak, reserved, levels[0 if i is None else matching.recorded[i[0]].at]),
            matching.steps[lies_in],
        ),
        predicted=_side(
            matching.predicted,
            partners[1],
            (
                step.allocated_bytes,
                step.reserved_bytes,
                prediction.before(0 if j is None else max(0, matching.predicted[j[1]].at)),
            ),
            step.step,
        ),
        only_recorded=_unmatched(matching.recorded, partners[0]),
        only_predicted=_unmatched(matching.predicted, partners[1]),
    )


def _instance_of(matching: _Matching, event: int) -> int:
    """Which of the matched steps is running at an event."""
    begins = [_first_pair(matching, k) for k in range(len(matching.steps))]
    begun = [
        k
        for k, pair in enumerate(begins)
        if pair is not None and matching.recorded[pair[0]].at <= event
    ]
    return begun[-1] if begun else 0


def _first_pair(matching: _Matching, instance: int) -> tuple[int, int] | None:
    """The first pair of one of the matched steps."""
    starts = (*matching.starts, len(matching.predicted))
    at = bisect_right(matching.pairs, starts[instance] - 1, key=lambda pair: pair[1])
    if at < len(matching.pairs) and matching.pairs[at][1] < starts[instance + 1]:
        return matching.pairs[at]
    return None


def _highest(matching: _Matching, prediction: _Prediction) -> int:
    """Which of the matched steps has the highest predicted peak."""
    steps = [k for k, step in enumerate(matching.steps) if step != LOADING]
    return max(steps, key=lambda k: prediction.steps[matching.steps[k]].allocated_bytes)


def _side(
    requests: list[Request],
    partners: set[int],
    levels: tuple[int, int | None, int],
    step: int,
) -> Side:
    allocated, reserved, resting = levels
    return Side(
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        resting_bytes=resting,
        step=step,
        requests=len(requests),
        requested_bytes=_total(requests),
        matched_requests=len(partners),
        matched_bytes=sum(requests[i].nbytes for i in partners),
    )


def _unmatched(requests: list[Request], partners: set[int]) -> tuple[Unmatched, ...]:
    """By origin, the most bytes first."""
    sums: dict[Origin, list[int]] = {}
    for index, request in enumerate(requests):
        if index not in partners:
            sums.setdefault(request.origin, []).append(request.nbytes)
    rows = [Unmatched(sum(s), len(s), max(s), origin) for origin, s in sums.items()]
    return tuple(sorted(rows, key=lambda row: -row.bytes))
