"""Recomputation: what checkpoints save in a step, and what they hold for it.

Of the last forward and backward of a schedule, one of several where micro-batches accumulate:

(1) A *recomputation* is a run of operations, one after another, that compute a module's forward
    once more in backward.
(2) It *remakes* what it allocates, forward had, and backward reads later: without the
    checkpoint forward would have kept it.
(3) Forward *keeps* for recomputations what nothing else reads in backward.
(4) So the checkpoints save all that is remade, less what is remade at once by the largest
    recomputation, less what is kept for them.

Not covered: a recomputation inside of another (both count), and whether the peak is in backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby, pairwise

from graphmem.report import RecomputationItem
from graphmem.schedule import Category, Operation, Phase, Schedule, Storage

Size = Callable[[Storage], int]

_KEPT = frozenset({Category.SAVED_FOR_BACKWARD, Category.INPUTS, Category.OUTPUTS})


def find(schedule: Schedule, size: Size) -> RecomputationItem | None:
    """The recomputations of the last pass; None where nothing is checkpointed."""
    last = _last_pass(schedule)
    runs = list(_runs(last))
    if not runs and not schedule.checkpoints:
        return None
    remade = [(_remade(schedule, run, size), run[0].recomputes) for run in runs]
    at_once, largest = max(remade, key=lambda one: one[0], default=(0, None))
    flops, again = schedule.flops
    total = sum(nbytes for nbytes, _ in remade)
    kept = sum(size(s) for s in _kept_for(schedule, last))
    return RecomputationItem(
        modules=schedule.checkpoints or tuple(dict.fromkeys(_names(runs))),
        count=len(runs),
        flops=flops,
        recomputed_flops=again,
        remade_bytes=total,
        at_once_bytes=at_once,
        largest=largest,
        kept_bytes=kept,
        saved_bytes=total - at_once - kept,
    )


def _last_pass(schedule: Schedule) -> list[Operation]:
    """The operations of the last step from its last forward on."""
    step = [op for op in schedule.operations if op.step == schedule.steps]
    begins = [
        position
        for position, (before, op) in enumerate(pairwise(step), start=1)
        if before.phase is Phase.BACKWARD and op.phase is Phase.FORWARD
    ]
    return step[begins[-1] :] if begins else step


def _runs(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    for module, run in groupby(operations, key=lambda op: op.recomputes):
        if module is not None:
            yield list(run)


def _names(runs: Iterable[list[Operation]]) -> Iterator[str]:
    return (run[0].recomputes for run in runs if run[0].recomputes is not None)


def _remade(schedule: Schedule, run: list[Operation], size: Size) -> int:
    """What a recomputation leaves for backward."""
    made = [schedule.storages[i] for op in run for i in op.allocates]
    end = run[-1].index
    return sum(size(s) for s in made if s.category in _KEPT and s.last_use > end)


def _kept_for(schedule: Schedule, operations: Iterable[Operation]) -> list[Storage]:
    """What forward made and backward reads in recomputations alone."""
    for_them: set[int] = set()
    for_others: set[int] = set()
    born: set[int] = set()
    for op in operations:
        if op.phase is Phase.FORWARD:
            born.update(op.allocates)
        elif op.phase is Phase.BACKWARD:
            (for_others if op.recomputes is None else for_them).update(op.reads)
    return [schedule.storages[i] for i in sorted((for_them & born) - for_others)]
