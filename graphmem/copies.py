"""Copies: what the user's own code keeps beside the parameters, tensor for tensor.

An average of the weights (EMA, SWA), a target network, a state dict kept for a rollback, the
last gradients. It is found

(1) as a module that no gradient reaches, whose parameters have the names and shapes of one
    that is trained, if the run writes it, or if it is as large as all that is trained (else
    it could be a frozen layer like its neighbours);
(2) as a dictionary or list with the names, or the order, and the shapes of the parameters;
(3) as tensors that one source line made out of parameters or gradients, that have all their
    shapes, besides those of buffers, and that outlive the step.

Not covered: a copy in another layout (one flat tensor) or of a part of the model, and what is
only shaped like the parameters (``zeros_like``), which is no copy.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphmem.schedule import BEFORE, Category, Schedule, Storage

Shape = tuple[int, ...]

_TRAINED = frozenset({Category.GRADIENTS, Category.OPTIMIZER_STATES})
_COPIED = frozenset({Category.PARAMETERS, Category.GRADIENTS, Category.BUFFERS})
_OWN = _TRAINED | {Category.PARAMETERS, Category.BUFFERS, Category.WORKSPACES}


@dataclass(frozen=True, slots=True)
class Copy:
    """Storages that repeat the parameters or the gradients, ``count`` times each.

    ``holder`` is the name of the user's object, where it has one; ``source`` the line that made
    them, or of what stood in memory before the first operation, the first that writes or else
    reads them.
    """

    storages: tuple[int, ...]
    of: Category
    count: int
    holder: str | None
    source: str | None


@dataclass(frozen=True, slots=True)
class _Original:
    """Parameters in their order: names below the model, and shapes."""

    prefix: str
    shapes: Mapping[str, Shape]


def find(schedule: Schedule, live: Sequence[Storage]) -> tuple[Copy, ...]:
    """The copies among the storages that are live at some moment, the largest first."""
    named = [s for s in schedule.storages if s.born == BEFORE and s.name is not None]
    originals = list(_originals(schedule, named))
    if not originals:
        return ()
    alive = {storage.id for storage in live}
    modules = _modules(schedule, [s for s in named if s.id in alive])
    found = [*modules, *_containers(schedule, live, originals), *_made(schedule, live, originals)]
    return tuple(sorted(found, key=lambda copy: -_nbytes(schedule, copy)))


def _nbytes(schedule: Schedule, copy: Copy) -> int:
    return sum(schedule.storages[i].nbytes for i in copy.storages)


# -- what is copied


def _trained(schedule: Schedule) -> set[str]:
    """The modules whose parameters have gradients or an optimizer's states."""
    return {s.module for s in schedule.storages if s.category in _TRAINED}


def _originals(schedule: Schedule, named: Sequence[Storage]) -> Iterator[_Original]:
    """Everything, each named root, and what of them is trained."""
    trained = _trained(schedule)
    parameters = [s for s in named if s.category is Category.PARAMETERS]
    prefixes = dict.fromkeys(["", *(_name(s).split(".")[0] for s in parameters)])
    for prefix in prefixes:
        below = [s for s in parameters if _is_below(s, prefix)]
        own = [s for s in below if s.module in trained]
        for kept in (below, own) if own != below else (below,):
            if own:
                yield _Original(prefix, {_rest(s, prefix): s.shape for s in kept})


# -- modules


def _modules(schedule: Schedule, named: Sequence[Storage]) -> Iterator[Copy]:
    trained = _trained(schedule)
    parameters = [s for s in named if s.category is Category.PARAMETERS]
    if all(s.module in trained for s in parameters):
        return
    below: dict[str, list[Storage]] = defaultdict(list)
    for storage in parameters:
        for prefix in _prefixes(_name(storage)):
            below[prefix].append(storage)
    reached = {p: sum(s.module in trained for s in own) for p, own in below.items()}
    most = max(reached.values(), default=0)
    written = {i for op in schedule.operations for i in op.writes}
    whole: dict[frozenset[tuple[str, Shape]], bool] = {}
    for prefix, count in reached.items():
        if count:
            signature = _signature(below[prefix], prefix)
            whole[signature] = whole.get(signature, False) or count == most
    taken: set[str] = set()
    for prefix, own in below.items():  # the outer ones come first
        is_known = (covers := whole.get(_signature(own, prefix))) is not None
        if reached[prefix] or not is_known or taken.intersection(_prefixes(prefix)):
            continue
        if covers or written.intersection(s.id for s in own):
            taken.add(prefix)
            held = [*own, *(s for s in named if _is_buffer_below(s, prefix))]
            yield _copy(schedule, held, Category.PARAMETERS, 1, prefix)


def _prefixes(name: str) -> list[str]:
    """``""``, ``a`` and ``a.b`` of ``a.b.c``."""
    parts = name.split(".")
    return [".".join(parts[:n]) for n in range(len(parts))]


def _signature(own: Iterable[Storage], prefix: str) -> frozenset[tuple[str, Shape]]:
    return frozenset((_rest(s, prefix), s.shape) for s in own)


def _is_buffer_below(storage: Storage, prefix: str) -> bool:
    return storage.category is Category.BUFFERS and _is_below(storage, prefix)


# -- dictionaries and lists that stood in memory before the first operation


def _containers(
    schedule: Schedule, live: Sequence[Storage], originals: Sequence[_Original]
) -> Iterator[Copy]:
    groups: dict[str, list[Storage]] = defaultdict(list)
    for storage in live:
        holder, _, key = _name(storage).partition(".")
        if storage.born == BEFORE and storage.category is Category.INPUTS and key:
            groups[holder].append(storage)
    for holder, group in groups.items():
        if any(_repeats(group, holder, original) for original in originals):
            yield _copy(schedule, group, Category.PARAMETERS, 1, holder)


def _repeats(group: Sequence[Storage], holder: str, original: _Original) -> bool:
    """Whether a dictionary has the parameters' names, or a list their order."""
    items = {_rest(s, holder): s.shape for s in group}
    if all(key.isdigit() for key in items):
        in_order = sorted(items, key=int)
        return [items[key] for key in in_order] == list(original.shapes.values())
    return original.shapes.items() <= items.items()


# -- what source lines made


def _made(
    schedule: Schedule, live: Sequence[Storage], originals: Sequence[_Original]
) -> Iterator[Copy]:
    groups: dict[tuple[str | None, str | None], list[Storage]] = defaultdict(list)
    for storage in live:
        if storage.category not in _OWN and _outlives_its_step(schedule, storage):
            groups[storage.op, storage.source].append(storage)
    wanted = [Counter(original.shapes.values()) for original in originals]
    for group in groups.values():
        has = Counter(storage.shape for storage in group)
        if not any(shapes <= has for shapes in wanted):
            continue
        made_of = {storage: _made_of(schedule, storage) for storage in group}
        own = [storage for storage in group if made_of[storage] is not Category.BUFFERS]
        for of in (Category.PARAMETERS, Category.GRADIENTS):
            if own and all(made_of[storage] is of for storage in own):
                count = max(_times(own, original) for original in originals)
                if count:
                    yield _copy(schedule, group, of, count, None)


def _outlives_its_step(schedule: Schedule, storage: Storage) -> bool:
    """Whether a step made a storage and kept it: autocast's casts of the weights are not."""
    if storage.born == BEFORE or storage.freed is None:
        return storage.born != BEFORE
    return schedule.operations[storage.born].step < schedule.operations[storage.freed].step


def _times(group: Sequence[Storage], original: _Original) -> int:
    """How often a group has the shapes of the parameters, and nothing else; 0: not so."""
    has, wanted = Counter(s.shape for s in group), Counter(original.shapes.values())
    count = has.total() // wanted.total()
    return count if has == Counter({shape: n * count for shape, n in wanted.items()}) else 0


def _made_of(schedule: Schedule, storage: Storage) -> Category | None:
    """What a storage was made of, by an operator that read as much; None: of nothing such."""
    operation = schedule.operations[storage.born]
    read = [schedule.storages[i] for i in operation.reads]
    same = (s for s in read if storage.shape == s.shape or storage.nbytes == s.nbytes)
    found = [s.category for s in same if s.category in _COPIED]
    return found[0] if found and not operation.target.endswith("_like") else None


def _copy(
    schedule: Schedule, group: Sequence[Storage], of: Category, count: int, holder: str | None
) -> Copy:
    ids = tuple(storage.id for storage in group)
    made = group[0].source if group[0].born != BEFORE else None
    return Copy(ids, of, count, holder, made or _first_use(schedule, set(ids)))


def _first_use(schedule: Schedule, ids: set[int]) -> str | None:
    """The line that writes one of some storages first, else the first that reads one."""
    operations = schedule.operations
    writes = (o.source for o in operations if not ids.isdisjoint(o.writes))
    reads = (o.source for o in operations if not ids.isdisjoint(o.reads))
    return next(writes, None) or next(reads, None)


def _name(storage: Storage) -> str:
    return storage.name or ""


def _is_below(storage: Storage, prefix: str) -> bool:
    return not prefix or _name(storage).startswith(f"{prefix}.")


def _rest(storage: Storage, prefix: str) -> str:
    return _name(storage).removeprefix(f"{prefix}.") if prefix else _name(storage)
