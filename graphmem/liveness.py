"""Liveness: how many bytes live while each operation runs, and where that is the most.

Definitions.

(1) While operation ``i`` runs, a storage occupies memory if ``born <= i`` and it has not
    died before ``i``: its inputs, its results and whatever else is held all count.
(2) Its death is ``freed`` under *observed* lifetimes and ``last_use`` under *last-use*
    lifetimes; a storage that stood in memory before the first operation, and one that
    outlives the schedule, keep their observed lifetime in both.
(3) The operation's scratch counts while it runs, and only then.
(4) The peak is the first operation with the most live bytes.

Not covered: where blocks lie (fragmentation) and when a caching allocator returns them;
that is the allocator's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, unique
from itertools import accumulate

from graphmem.errors import InvariantError
from graphmem.schedule import BEFORE, Category, Schedule, Storage

Size = Callable[[Storage], int]
"""The bytes that a storage occupies, after rounding."""


@unique
class Lifetimes(Enum):
    """Until when a storage occupies memory."""

    OBSERVED = "observed"
    LAST_USE = "last use"


@dataclass(frozen=True, slots=True)
class Liveness:
    """``live_bytes[i]`` while operation ``i`` runs; the peak and the operation it is at."""

    live_bytes: tuple[int, ...]
    peak_bytes: int
    peak_index: int


def death(storage: Storage, lifetimes: Lifetimes) -> int | None:
    """The operation after which a storage no longer occupies memory; None: never."""
    if lifetimes is Lifetimes.OBSERVED or storage.freed is None or storage.born == BEFORE:
        return storage.freed
    return storage.last_use


def measure(
    schedule: Schedule,
    size: Size,
    lifetimes: Lifetimes = Lifetimes.OBSERVED,
    scratch: Sequence[int] | None = None,
) -> Liveness:
    """The live bytes at every operation, and their peak.

    Args:
        scratch: the bytes of each operation's scratch, after rounding; None takes
            ``Operation.scratch_bytes``.

    Raises:
        InvariantError: if the schedule has no operation.
    """
    count = len(schedule.operations)
    if count == 0:
        raise InvariantError("nothing ran: the schedule has no operation")
    change = [0] * (count + 1)
    for storage in schedule.storages:
        nbytes = size(storage)
        change[max(storage.born, 0)] += nbytes
        end = death(storage, lifetimes)
        if end is not None:
            change[end + 1] -= nbytes
    if scratch is None:
        scratch = [op.scratch_bytes for op in schedule.operations]
    held = accumulate(change[:count])
    live = tuple(nbytes + extra for nbytes, extra in zip(held, scratch, strict=True))
    peak = max(live)
    return Liveness(live, peak, live.index(peak))


def live_at(
    schedule: Schedule, index: int, lifetimes: Lifetimes = Lifetimes.OBSERVED
) -> list[Storage]:
    """The storages that occupy memory while an operation runs."""
    return [s for s in schedule.storages if _lives(s, index, lifetimes)]


def _lives(storage: Storage, index: int, lifetimes: Lifetimes) -> bool:
    end = death(storage, lifetimes)
    return storage.born <= index and (end is None or end >= index)


_PERSISTENT = frozenset(
    {Category.PARAMETERS, Category.BUFFERS, Category.OPTIMIZER_STATES, Category.WORKSPACES}
)


def idle(storages: Iterable[Storage], index: int) -> list[Storage]:
    """Those of the live storages that no operation from ``index`` on reads or writes.

    What the next step would read again, beyond the end of the schedule, is not idle:
    parameters, buffers, optimizer states and whatever stood there before the first step.
    """
    return [s for s in storages if is_idle(s, index)]


def is_idle(storage: Storage, index: int) -> bool:
    """Whether a live storage is held although nothing from ``index`` on needs it."""
    return (
        storage.last_use < index and storage.born != BEFORE and storage.category not in _PERSISTENT
    )
