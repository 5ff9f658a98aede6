"""What stops the next size: the request that fails, and who holds the memory then."""

from __future__ import annotations

from dataclasses import dataclass

from graphmem import liveness
from graphmem.report import Fit, OutOfMemory
from graphmem.schedule import BEFORE, Category, Schedule, Storage


@dataclass(frozen=True, slots=True)
class Holding:
    """The largest tensor that lives when the memory ends; fields as ``report.Holder``'s."""

    bytes: int
    shape: tuple[int, ...]
    dtype: str
    category: str
    op: str | None
    module: str
    source: str | None


@dataclass(frozen=True, slots=True)
class LimitedBy:
    """Why the next size does not fit.

    ``term`` is the category that holds the most when ``request`` fails, with the request itself;
    ``breakdown`` are the bytes of all then, unrounded, and ``growth`` what each takes more than
    at the size that fits, where the run is the same but for the size. ``missing_bytes`` are
    those with which it would fit.
    """

    term: str
    breakdown: dict[str, int]
    growth: dict[str, int] | None
    holder: Holding | None
    request: OutOfMemory | None
    missing_bytes: int


def limited_by(fit: Fit, schedule: Schedule, fitting: Schedule | None) -> LimitedBy:
    """Why a run does not fit.

    Args:
        fit: says that it does not.
        schedule: the run.
        fitting: the run at the size before, which does.
    """
    request = fit.out_of_memory_at
    index = _peak(schedule) if request is None else request.op_index
    breakdown = _breakdown(schedule, index)
    live = _live(schedule, index)
    largest = max(live, key=lambda s: (s.nbytes, -s.id), default=None)
    return LimitedBy(
        term=max(breakdown, key=lambda name: breakdown[name]),
        breakdown=breakdown,
        growth=None if fitting is None else _growth(breakdown, schedule, fitting, index),
        holder=None if largest is None else _holding(largest),
        request=request,
        missing_bytes=-fit.headroom_bytes,
    )


def _growth(
    breakdown: dict[str, int], schedule: Schedule, fitting: Schedule, index: int
) -> dict[str, int] | None:
    """What each category holds more than in another run at the same moment; None of another."""
    same = len(schedule.operations) == len(fitting.operations)
    if not same or (index != BEFORE and not _is_same(schedule, fitting, index)):
        return None
    before = _breakdown(fitting, index)
    return {name: nbytes - before[name] for name, nbytes in breakdown.items()}


def _is_same(schedule: Schedule, other: Schedule, index: int) -> bool:
    one, two = schedule.operations[index], other.operations[index]
    return (one.target, one.module, one.step) == (two.target, two.module, two.step)


def _breakdown(schedule: Schedule, index: int) -> dict[str, int]:
    found = dict.fromkeys(map(str, Category), 0)
    for storage in _live(schedule, index):
        found[str(storage.category)] += storage.nbytes
    if index != BEFORE:
        found[str(Category.WORKSPACES)] += schedule.operations[index].scratch_bytes
    return found


def _live(schedule: Schedule, index: int) -> list[Storage]:
    return [s for s in liveness.live_at(schedule, index) if not s.host]


def _peak(schedule: Schedule) -> int:
    return liveness.measure(schedule, lambda s: 0 if s.host else s.nbytes).peak_index


def _holding(storage: Storage) -> Holding:
    return Holding(
        bytes=storage.nbytes,
        shape=storage.shape,
        dtype=storage.dtype,
        category=str(storage.category),
        op=storage.op,
        module=storage.module,
        source=storage.source,
    )
