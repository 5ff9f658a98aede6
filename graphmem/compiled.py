"""What ``torch.compile`` may save: the peak of a compiled run, with and without fusion.

The schedule of a compiled run has one operation for each node of AOTAutograd's graphs. Run
so (the backend ``aot_eager_decomp_partition``), it takes the most; ``fused`` makes of it the
schedule of kernels that are fused as far as they may be, which takes the least:

(1) A ``fused`` storage takes no memory.
(2) What is read to make it is read when it is itself read: those storages live as long as it.
(3) Where a generated kernel is the last to read a storage that such a kernel or a library's
    made, and the result is as large, it is written in its place
    (``torch._inductor.config.inplace_buffers``).

Not covered: the order of kernels, which inductor may change to lower the peak.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from graphmem.options import Options
from graphmem.report import Compiled, Peak, Range
from graphmem.schedule import Category, Schedule, Storage
from graphmem.summary import peak_of

_PASSING = frozenset({Category.TEMPORARIES, Category.SAVED_FOR_BACKWARD})
"""What a compiled graph may overwrite: what is its own, and what forward saved for it."""


def compiled_run(schedule: Schedule, eager: Schedule, graphs: int, options: Options) -> Compiled:
    """The report's part on a compiled run.

    Args:
        schedule: of the model's steps under ``torch.compile``.
        eager: of the same without it.
        graphs: how many Dynamo captured.
    """
    most, least = peak_of(schedule, options), peak_of(fused(schedule), options)
    return Compiled(
        requested_bytes=_range(least.requested_bytes, most.requested_bytes),
        allocated_bytes=_range(least.allocated_bytes, most.allocated_bytes),
        reserved_bytes=_reserved(least, most),
        saved_bytes=saved_bytes(schedule),
        eager_saved_bytes=saved_bytes(eager),
        graphs=graphs,
        step=most.step,
        phase=most.phase,
        op=most.op,
        module=most.module,
        source=most.source,
    )


def saved_bytes(schedule: Schedule) -> int:
    """The bytes that forward keeps for backward in the last step, parameters left out."""
    last = schedule.steps
    return sum(
        storage.nbytes
        for storage in schedule.storages
        if storage.saved_by is not None
        and storage.category is Category.SAVED_FOR_BACKWARD
        and storage.born >= 0
        and schedule.operations[storage.born].step == last
    )


def fused(schedule: Schedule) -> Schedule:
    """The schedule with kernels fused as far as they may be; see the module's docstring."""
    deaths = _deaths(schedule)
    written_over = _written_over(schedule, deaths)
    gone = {s.id for s in schedule.storages if s.fused} | written_over
    frees = defaultdict(list)
    for number, death in enumerate(deaths):
        if death is not None:
            frees[death].append(number)
    return replace(
        schedule,
        operations=tuple(
            replace(op, frees=tuple(frees.get(op.index, ()))) for op in schedule.operations
        ),
        storages=tuple(
            replace(s, nbytes=0 if s.id in gone else s.nbytes, freed=deaths[s.id])
            for s in schedule.storages
        ),
    )


def _deaths(schedule: Schedule) -> list[int | None]:
    """When each storage dies, with definition (2)."""
    deaths = [storage.freed for storage in schedule.storages]
    for op in reversed(schedule.operations):
        made = [i for i in op.allocates if schedule.storages[i].fused]
        ends = [end for i in made if (end := deaths[i]) is not None]
        if ends:
            for i in op.reads:
                death = deaths[i]
                deaths[i] = None if death is None else max(death, *ends)
    return deaths


def _written_over(schedule: Schedule, deaths: list[int | None]) -> set[int]:
    """The storages that lie where another did, whose death then is theirs (3)."""
    storages, found = schedule.storages, set()
    dying: dict[int, set[int]] = defaultdict(set)
    for storage in storages:
        death = deaths[storage.id]
        if death is not None and storage.category in _PASSING and not storage.fused:
            dying[death].add(storage.id)
    for op in schedule.operations:
        for number in op.allocates:
            new = storages[number]
            if not new.generated or new.fused:
                continue
            old = _of_size(new, dying[op.index], storages)
            if old is None:
                continue
            found.add(number)
            dying[op.index].discard(old)
            deaths[old] = end = deaths[number]
            if end is not None:
                dying[end].discard(number)
                dying[end].add(old)
    return found


def _of_size(new: Storage, dying: set[int], storages: Sequence[Storage]) -> int | None:
    """The first of the dying storages that is as large as a new one, and older."""
    fitting = (i for i in sorted(dying) if storages[i].nbytes == new.nbytes > 0)
    return next((i for i in fitting if storages[i].born < new.born), None)


def _range(one: int, other: int) -> Range:
    return Range(min(one, other), max(one, other))


def _reserved(least: Peak, most: Peak) -> Range | None:
    if least.reserved_bytes is None or most.reserved_bytes is None:
        return None
    return _range(least.reserved_bytes, most.reserved_bytes)
