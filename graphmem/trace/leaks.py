"""Leaks: what a run's steps leave behind, who holds it, and one step more to be sure.

Two steps show what every step leaves; they don't tell the previous output, which the next
replaces, from a list of outputs. Only where something looks like a leak, the step is run once
more, after the schedule is made: the bytes of the report are those of the steps that were
asked for, and a run that leaves nothing costs nothing more.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.autograd.graph import Node

from graphmem import growth
from graphmem.growth import Held
from graphmem.schedule import Growth, Schedule
from graphmem.trace.ledger import Ledger
from graphmem.trace.recorder import Recorder
from graphmem.trace.replaced import replaced

_ENOUGH = 3
"""The steps that tell the previous output from a list of outputs."""

Named = Iterable[tuple[str, Tensor]]
"""Tensors that the user's objects hold, by their names."""


def with_growths(
    schedule: Schedule,
    ledger: Ledger,
    named: Callable[[], Named],
    once_more: Callable[[], Schedule],
) -> Schedule:
    """A schedule with what grows in it.

    Args:
        named: looks for the tensors that the user's objects hold now.
        once_more: runs a further step, and gives the schedule with it; called where there are
            fewer than three.
    """
    left = growth.left_behind(schedule)
    if not left and not growth.crosses_steps(schedule):
        return replace(schedule, growths=growth.caches(schedule))
    holders = list(_holders(ledger, named()))
    longer = _longer(once_more) if schedule.steps < _ENOUGH else None
    longest = schedule if longer is None else longer
    left, step = growth.left_behind(longest), growth.told_by(longest)
    kept = growth.kept(schedule, left, holders, step, longest.steps)
    names = {held.storage: held.name for held in holders}
    caches = (replace(c, holder=names.get(c.root)) for c in _caches(schedule, longer))
    return replace(schedule, growths=(*kept, *caches))


def _caches(schedule: Schedule, longer: Schedule | None) -> tuple[Growth, ...]:
    """The caches within steps, and those over steps, which a step more tells better."""
    found = growth.caches(schedule)
    if longer is None:
        return found
    over = growth.caches(longer, len(schedule.storages))
    within = tuple(cache for cache in found if not cache.each_step)
    return within + tuple(cache for cache in over if cache.each_step)


@contextmanager
def without_graph(recorder: Recorder) -> Iterator[None]:
    """Operators inside are recorded, and no part of the ``torch.fx.Graph``."""
    with replaced(recorder, "graph", None):
        yield


def _longer(once_more: Callable[[], Schedule]) -> Schedule | None:
    """The run with a step more; None if the user's code has none (its data are used up)."""
    try:
        return once_more()
    except Exception:
        return None


def _holders(ledger: Ledger, named: Named) -> Iterator[Held]:
    """The tensors that the user holds: those with a name in the order of their birth, then ends.

    An end is a tensor with a graph that no other tensor's graph leads to.
    """
    numbers = ledger.numbers
    first = {
        numbers[entry.id]: _without_index(name)
        for name, tensor in reversed(list(named))
        for entry in ledger.entries_of(tensor)
        if entry.id in numbers
    }
    yield from (Held(i, first[i]) for i in sorted(first))
    ends = {numbers[entry.id] for tensor in _ends() for entry in ledger.entries_of(tensor)}
    yield from (Held(i, None) for i in sorted(ends - first.keys()))


def _without_index(name: str) -> str:
    """``losses`` of ``losses.12`` and of ``losses.12.total``, the tensor's place in a list."""
    parts = name.split(".")
    indices = [position for position, part in enumerate(parts) if position and part.isdigit()]
    return ".".join(parts[: indices[0]]) if indices else name


def _ends() -> list[Tensor]:
    """The tensors whose autograd node no other tensor's graph leads to."""
    tensors = [found for found in gc.get_objects() if issubclass(type(found), Tensor)]
    with_graph = [(tensor, tensor.grad_fn) for tensor in tensors if tensor.grad_fn is not None]
    inner = _behind([node for _, node in with_graph])
    return [tensor for tensor, node in with_graph if node not in inner]


def _behind(nodes: Iterable[Node]) -> set[Any]:
    """The autograd nodes that some nodes lead to."""
    found, queue = set[Any](), list(nodes)
    while queue:
        for node, _ in queue.pop().next_functions:
            if node is not None and node not in found:
                found.add(node)
                queue.append(node)
    return found
