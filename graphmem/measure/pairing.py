"""Pairing a real run's allocations with the predicted ones.

1. The operators of both are aligned by name, in order: what was dispatched is the same,
   a real kernel only calls more. Those that never allocate have no say: autograd detaches
   and views in another order under a dispatch mode, and a few of these in a row would be
   aligned at the cost of one operator between them that allocates.
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
    groups = _by_predicted_call(measured, _aligned(measured, predicted))
    for wanted in sorted(missing):
        group = groups.get(predicted.events[wanted].calls[-1], [])
        found = _last_to_die(measured, group, predicted.events[wanted].nbytes)
        if found is not None:
            group.remove(found)
            extra.remove(found)
            missing.remove(wanted)
    _pair_leftovers(measured, predicted, extra, missing)
    return extra, missing


def _aligned(measured: Stream, predicted: Stream) -> dict[int, int]:
    """Measured call -> predicted call."""
    allocating = {predicted.calls[e.calls[-1]] for e in predicted.events if e.nbytes > 0}
    ours, theirs = _numbers(measured, allocating), _numbers(predicted, allocating)
    names = [measured.calls[n] for n in ours], [predicted.calls[n] for n in theirs]
    return {ours[i]: theirs[j] for i, j in common(*names)}


def _numbers(stream: Stream, names: set[str]) -> list[int]:
    """The calls of some names, in order."""
    return [number for number, name in enumerate(stream.calls) if name in names]


def _by_predicted_call(measured: Stream, partners: dict[int, int]) -> dict[int, list[int]]:
    """The measured allocations of each predicted call."""
    groups: dict[int, list[int]] = defaultdict(list)
    for index, event in enumerate(measured.events):
        if event.nbytes > 0:
            inside = [partners[call] for call in event.calls if call in partners]
            if inside:
                groups[inside[-1]].append(index)
    return groups


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
