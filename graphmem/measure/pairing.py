"""Pairing a real run's allocations with the predicted ones.

1. The operators of both are aligned by name, in order: what was dispatched is the same. Names
   that never allocate in the prediction have no say: autograd detaches and views in another
   order under a dispatch mode, and a few of these in a row would be aligned at the cost of one
   operator between them that allocates. What a real kernel calls in its turn belongs to it: the
   outermost call of a name that has a say stands for all that is allocated in it.
2. Within a pair of operators, each predicted result is paired with an allocation of its
   size; of several the one that dies last, since a result outlives the kernel's scratch.
3. What is left on both sides (tensors made below the dispatcher) is paired by size, in
   order.

Both alignments are longest common subsequences (``align``).

What then has no partner was allocated and not predicted, or the other way round.
"""

from __future__ import annotations

from collections import defaultdict

from graphmem.measure.align import common
from graphmem.measure.stream import Stream


def unmatched(measured: Stream, predicted: Stream) -> tuple[set[int], set[int]]:
    """The indices of the allocations that only one of two streams has.

    Each allocation of ``predicted`` belongs to its one, innermost call.
    """
    extra = {index for index, event in enumerate(measured.events) if event.nbytes > 0}
    missing = {index for index, event in enumerate(predicted.events) if event.nbytes > 0}
    groups = _groups(measured, predicted)
    for wanted in sorted(missing):
        group = groups.get(predicted.events[wanted].calls[-1], [])
        found = _last_to_die(measured, group, predicted.events[wanted].nbytes)
        if found is not None:
            group.remove(found)
            extra.remove(found)
            missing.remove(wanted)
    _pair_leftovers(measured, predicted, extra, missing)
    return extra, missing


def _groups(measured: Stream, predicted: Stream) -> dict[int, list[int]]:
    """The measured allocations of each predicted call."""
    names = {predicted.calls[event.calls[-1]] for event in predicted.events if event.nbytes > 0}
    groups, inner = _by_outermost_call(measured, names)
    ours = [n for n, name in enumerate(measured.calls) if name in names and n not in inner]
    theirs = [n for n, name in enumerate(predicted.calls) if name in names]
    pairs = common([measured.calls[n] for n in ours], [predicted.calls[n] for n in theirs])
    return {theirs[j]: groups[ours[i]] for i, j in pairs if ours[i] in groups}


def _by_outermost_call(
    measured: Stream, names: set[str]
) -> tuple[dict[int, list[int]], frozenset[int]]:
    """The allocations in each call of one of the names, and the calls in these."""
    groups: dict[int, list[int]] = defaultdict(list)
    inner: set[int] = set()
    for index, event in enumerate(measured.events):
        depth = next((d for d, n in enumerate(event.calls) if measured.calls[n] in names), None)
        if depth is not None:
            inner.update(event.calls[depth + 1 :])
            if event.nbytes > 0:
                groups[event.calls[depth]].append(index)
    return dict(groups), frozenset(inner)


def _last_to_die(measured: Stream, group: list[int], nbytes: int) -> int | None:
    fitting = [index for index in group if measured.events[index].nbytes == nbytes]
    return max(fitting, key=lambda index: measured.deaths[index], default=None)


def _pair_leftovers(
    measured: Stream, predicted: Stream, extra: set[int], missing: set[int]
) -> None:
    a, b = sorted(extra), sorted(missing)
    pairs = common(
        [measured.events[index].nbytes for index in a],
        [predicted.events[index].nbytes for index in b],
    )
    extra.difference_update(a[i] for i, _ in pairs)
    missing.difference_update(b[j] for _, j in pairs)
