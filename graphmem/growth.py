"""Growth: what a run leaves in memory step after step, or turn after turn of a loop.

Definitions.

(1) A step *leaves* a storage that is born in it and outlives the last step. Storages are
    alike if operator, module, source line and dtype are; what is *left behind* is what is
    like something that every step leaves. What only stands for one step more (the previous
    output, until the next replaces it) looks the same after two steps and not after three,
    so one who has two steps asks for a third before he believes it (``trace.leaks``).
(2) Of the storages left behind, those that went into a tensor which the user holds are kept
    by that tensor's graph: the slice of the schedule, since the step began, that leads to it.
(3) A *cache* is a chain of storages, each concatenated from the one before and something
    else, at the same line, longer by the same number of bytes each time.

Not covered: what grows only now and then, and a buffer with room for more steps than were
recorded, which looks like one without an end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from graphmem.schedule import BEFORE, Category, Growing, Growth, Schedule, Storage

Key = tuple[str | None, str, str | None, str]
"""Operator, module, source line and dtype."""

_OWN = frozenset({Category.PARAMETERS, Category.BUFFERS, Category.WORKSPACES})
_CONCATENATES = frozenset({"aten.cat", "aten.constant_pad_nd"})
_LEAST_STEPS = 2
_LEAST_LINKS = 2
"""The fewest additions that can be told to be equal."""


@dataclass(frozen=True, slots=True)
class Held:
    """A storage that one of the user's objects holds after the last step, and its name."""

    storage: int
    name: str | None


# -- what steps leave behind


def told_by(schedule: Schedule) -> int:
    """The step whose storages tell what a step leaves: one that another follows, of three."""
    return schedule.steps - (schedule.steps > _LEAST_STEPS)


def left_behind(schedule: Schedule) -> list[int]:
    """The storages that one step (``told_by``) left, as every step did; none of a single step."""
    if schedule.steps < _LEAST_STEPS:
        return []
    told = told_by(schedule)
    steps: dict[Key, set[int]] = defaultdict(set)
    left: dict[Key, list[int]] = defaultdict(list)
    for storage in schedule.storages:
        if storage.freed is None and storage.born != BEFORE and storage.category not in _OWN:
            step = schedule.operations[storage.born].step
            steps[_key(storage)].add(step)
            if step == told:
                left[_key(storage)].append(storage.id)
    return [i for key, ids in left.items() if len(steps[key]) == schedule.steps for i in ids]


def kept(
    schedule: Schedule, left: Iterable[int], holders: Sequence[Held], step: int, steps: int
) -> tuple[Growth, ...]:
    """What was left behind, by the tensors that keep it; each storage in one growth.

    Args:
        left: the storages.
        holders: the tensors that the user holds; the earlier ones have the first claim.
        step: the step that left them.
        steps: in how many steps it was seen.
    """
    rest, found, makers = set(left), [], _makers(schedule, step)
    for held in holders:
        own = {held.storage} & rest | _slice(schedule, held.storage, rest, makers)
        if own:
            rest -= own
            kind = _kind(schedule, own, held.storage)
            name = None if kind is Growing.STATES else held.name
            found.append(_growth(schedule, kind, own, held.storage, name, steps))
    by_line: dict[tuple[bool, str | None], set[int]] = defaultdict(set)
    for storage in (schedule.storages[i] for i in rest):
        by_line[storage.category is Category.OPTIMIZER_STATES, storage.source].add(storage.id)
    for own in by_line.values():
        root = max(own, key=lambda i: (schedule.storages[i].nbytes, -i))
        kind = Growing.STATES if _are_states(schedule, own) else Growing.TENSORS
        found.append(_growth(schedule, kind, own, root, None, steps))
    return joined(found)


def _kind(schedule: Schedule, own: set[int], root: int) -> Growing:
    if _are_states(schedule, own):
        return Growing.STATES
    return Growing.TENSORS if own == {root} else Growing.GRAPH


def _are_states(schedule: Schedule, own: Iterable[int]) -> bool:
    return all(schedule.storages[i].category is Category.OPTIMIZER_STATES for i in own)


def joined(growths: Iterable[Growth]) -> tuple[Growth, ...]:
    """The tensors of one holder are one growth, and all states; the largest first."""
    groups: dict[tuple[Growing, str | None, int], list[Growth]] = defaultdict(list)
    for growth in growths:
        by_holder = growth.holder is not None and growth.kind is Growing.TENSORS
        whole = by_holder or growth.kind is Growing.STATES
        groups[growth.kind, growth.holder, -1 if whole else growth.root].append(growth)
    merged = [_merged(group) for group in groups.values()]
    return tuple(sorted(merged, key=lambda growth: (-growth.nbytes, growth.root)))


def _merged(group: Sequence[Growth]) -> Growth:
    largest = max(group, key=lambda growth: growth.nbytes)
    return Growth(
        largest.kind,
        tuple(sorted(i for growth in group for i in growth.storages)),
        sum(growth.nbytes for growth in group),
        largest.root,
        largest.holder,
        largest.times,
        largest.each_step,
    )


def _growth(
    schedule: Schedule, kind: Growing, own: set[int], root: int, holder: str | None, steps: int
) -> Growth:
    nbytes = sum(schedule.storages[i].nbytes for i in own)
    return Growth(kind, tuple(sorted(own)), nbytes, root, holder, steps, each_step=True)


def _slice(
    schedule: Schedule, root: int, wanted: Collection[int], makers: Mapping[int, Sequence[int]]
) -> set[int]:
    """Those of the wanted storages that operations since the step began led into a storage.

    What is older than the step (weights, states) is not looked behind: the step before wrote
    it from everything.
    """
    found, queue, seen = set[int](), [root], {root}
    while queue:
        for index in makers.get(queue.pop(), ()):
            operation = schedule.operations[index]
            for i in (*operation.reads, *operation.allocates):
                if i in wanted:
                    found.add(i)
                if i not in seen:
                    seen.add(i)
                    queue.append(i)
    return found


def _makers(schedule: Schedule, step: int) -> Mapping[int, list[int]]:
    """For each storage since a step began the operations that allocate or write it."""
    makers: dict[int, list[int]] = defaultdict(list)
    first = next((o.index for o in schedule.operations if o.step == step), 0)
    for operation in schedule.operations[first:]:
        for i in {*operation.allocates, *operation.writes}:
            if schedule.storages[i].born >= first:
                makers[i].append(operation.index)
    return makers


# -- caches


def caches(schedule: Schedule, known: int | None = None) -> tuple[Growth, ...]:
    """The caches of a run, those of one source line together.

    Args:
        known: how many storages there are for a growth to name; None: all.
    """
    chains: dict[tuple[str | None, str | None, bool], list[Sequence[Storage]]]
    chains = defaultdict(list)
    for chain in _chains(schedule):
        same = _same_additions(chain)
        if len(same) > _LEAST_LINKS:
            end = same[-1]
            chains[end.op, end.source, _once_a_step(schedule, same)].append(same)
    count = len(schedule.storages) if known is None else known
    return tuple(_cache(_together(group), key[2], count) for key, group in chains.items())


def crosses_steps(schedule: Schedule) -> bool:
    """Whether a step lengthened what the step before left, if only once yet."""
    operations = schedule.operations
    return any(
        end.freed is None and operations[start.born].step < operations[end.born].step
        for start, end in _links(schedule)
        if start.born != BEFORE
    )


def _cache(chains: Sequence[Sequence[Storage]], each_step: bool, known: int) -> Growth:
    ends = [max((s for s in chain if s.id < known), key=lambda s: s.id) for chain in chains]
    root = max(ends, key=lambda storage: (storage.nbytes, -storage.id))
    return Growth(
        Growing.CACHE,
        tuple(sorted(storage.id for storage in ends)),
        sum(chain[-1].nbytes - chain[-2].nbytes for chain in chains),
        root.id,
        None,
        max(len(chain) - 1 for chain in chains),
        each_step,
    )


def _together(chains: Sequence[Sequence[Storage]]) -> list[Sequence[Storage]]:
    """The last chain and those that grow while it does: of every layer, but not of every step."""
    begun = max(chains, key=lambda chain: chain[-1].born)[1].born
    return [chain for chain in chains if chain[-1].born >= begun]


def _chains(schedule: Schedule) -> list[list[Storage]]:
    """The longest chains, each storage from the one before."""
    before = {end.id: start for start, end in _links(schedule)}
    middles = {
        start.id for end, start in before.items() if _key(start) == _key(schedule.storages[end])
    }
    chains: list[list[Storage]] = []
    for end in before.keys() - middles:
        chain = [schedule.storages[end]]
        while chain[-1].id in before and _key(chain[-1]) == _key(schedule.storages[end]):
            chain.append(before[chain[-1].id])
        chains.append(chain[::-1])
    return sorted(chains, key=lambda chain: chain[-1].id)


def _links(schedule: Schedule) -> Iterable[tuple[Storage, Storage]]:
    """What an operation concatenated to something longer, and the result."""
    for operation in schedule.operations:
        if operation.target in _CONCATENATES:
            for end in (schedule.storages[i] for i in operation.allocates):
                parts = [schedule.storages[i] for i in operation.reads]
                longer = [part for part in parts if _lengthens(part, end)]
                if longer:
                    yield max(longer, key=lambda part: (part.nbytes, -part.id)), end


def _lengthens(start: Storage, end: Storage) -> bool:
    """Whether two storages differ in one dimension only, of which the second has more."""
    if start.dtype != end.dtype or len(start.shape) != len(end.shape):
        return False
    differ = [(a, b) for a, b in zip(start.shape, end.shape, strict=True) if a != b]
    return len(differ) == 1 and differ[0][0] < differ[0][1]


def _same_additions(chain: Sequence[Storage]) -> Sequence[Storage]:
    """The end of a chain over which each storage is longer than the last by the same bytes."""
    start = len(chain) - 2
    added = chain[-1].nbytes - chain[-2].nbytes
    while start > 0 and chain[start].nbytes - chain[start - 1].nbytes == added:
        start -= 1
    return chain[start:]


def _once_a_step(schedule: Schedule, chain: Sequence[Storage]) -> bool:
    steps = [schedule.operations[storage.born].step for storage in chain[1:]]
    return len(set(steps)) == len(steps)


def _key(storage: Storage) -> Key:
    return storage.op, storage.module, storage.source, storage.dtype
