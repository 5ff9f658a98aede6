"""The cheapest set of blocks to checkpoint, by optimisation over the schedule.

1. A block's *gain* is what its forward makes for its backward alone: bytes that would be made
   again. What an operation outside of it reads is kept in any case.
2. While some blocks have been run and wait for their backward, what is live may be lowered by
   the gains of those. They wait like a stack: the sets of waiting blocks lie in one another.
3. Wanted is the set with the least cost (bytes that its forward writes, in place of its time) so
   that at every moment what is left fits. That is solved exactly: of the sets of the first k
   blocks only those count that no cheaper one gains as much as.

Not covered: fragmentation, and the moment in which a block is made again; so the answer is
traced, and asked for again with less memory where it does not fit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphmem import liveness
from graphmem.plans.blocks import block_of
from graphmem.schedule import Phase, Schedule, Storage


@dataclass(frozen=True, slots=True)
class Block:
    """A block of one step: when it waits for its backward, and what checkpointing it does."""

    path: str
    waits_from: int
    waits_to: int
    gain: int
    cost: int


def best_set(schedule: Schedule, paths: Sequence[str], allowed: int) -> tuple[str, ...] | None:
    """The blocks to checkpoint so that live bytes stay within ``allowed``; None if none do.

    Args:
        schedule: the run without any checkpoint.
        paths: of the blocks.
    """
    blocks = sorted(_blocks(schedule, paths), key=lambda block: block.waits_from)
    needs = _needs(schedule, blocks, allowed)
    if needs is None:
        return None
    return _cheapest(blocks, needs)


def _cheapest(blocks: Sequence[Block], needs: Mapping[int, int]) -> tuple[str, ...] | None:
    """Sets of the first blocks, each with its gain, none of which another one beats.

    Args:
        needs: the gain that the first k blocks must have, by k.
    """
    front: list[tuple[int, int, tuple[str, ...]]] = [(0, 0, ())]  # cost, gain, paths
    for count, block in enumerate(blocks, start=1):
        taken = [(c + block.cost, g + block.gain, (*p, block.path)) for c, g, p in front]
        enough = [one for one in (*front, *taken) if one[1] >= needs.get(count, 0)]
        front = _unbeaten(enough)
    return front[0][2] if front else None


def _unbeaten(
    sets: list[tuple[int, int, tuple[str, ...]]],
) -> list[tuple[int, int, tuple[str, ...]]]:
    kept: list[tuple[int, int, tuple[str, ...]]] = []
    for one in sorted(sets, key=lambda s: (s[0], -s[1])):
        if not kept or one[1] > kept[-1][1]:
            kept.append(one)
    return kept


def _needs(schedule: Schedule, blocks: Sequence[Block], allowed: int) -> dict[int, int] | None:
    """The gain that the first k blocks must have; None where a moment has no block waiting."""
    live = liveness.measure(schedule, lambda s: 0 if s.host else s.nbytes).live_bytes
    needs: dict[int, int] = {}
    for op, nbytes in zip(schedule.operations, live, strict=True):
        if nbytes > allowed and op.step == schedule.steps:
            waiting = sum(block.waits_from <= op.index < block.waits_to for block in blocks)
            if not waiting:
                return None
            needs[waiting] = max(needs.get(waiting, 0), nbytes - allowed)
    return needs


def _blocks(schedule: Schedule, paths: Sequence[str]) -> list[Block]:
    """The blocks as the last step runs them; those without a backward are left out."""
    forward: dict[str, list[int]] = defaultdict(list)
    backward: dict[str, list[int]] = defaultdict(list)
    known = frozenset(paths)
    for op in schedule.operations:
        path = block_of(op.module, known)
        if op.step == schedule.steps and path is not None:
            if op.phase is Phase.FORWARD:
                forward[path].append(op.index)
            elif op.phase is Phase.BACKWARD:
                backward[path].append(op.index)
    readers = _forward_readers(schedule, known)
    return [
        _block(schedule, path, forward[path], backward[path], readers)
        for path in paths
        if forward[path] and backward[path]
    ]


def _block(
    schedule: Schedule,
    path: str,
    forward: Sequence[int],
    backward: Sequence[int],
    readers: Mapping[int, set[str | None]],
) -> Block:
    made = [schedule.storages[i] for index in forward for i in schedule.operations[index].allocates]
    gain = sum(s.nbytes for s in made if _is_made_again(s, path, forward, backward, readers))
    cost = sum(s.nbytes for s in made)
    return Block(path, forward[-1] + 1, backward[0], gain, cost)


def _is_made_again(
    storage: Storage,
    path: str,
    forward: Sequence[int],
    backward: Sequence[int],
    readers: Mapping[int, set[str | None]],
) -> bool:
    """Whether a storage of a block lives into its backward and nobody else's forward reads it."""
    lives = storage.freed is None or storage.freed >= backward[0]
    return lives and not storage.host and readers[storage.id] <= {path}


def _forward_readers(schedule: Schedule, paths: frozenset[str]) -> Mapping[int, set[str | None]]:
    """Of each storage the blocks whose forward reads it; None is code outside of them."""
    readers: dict[int, set[str | None]] = defaultdict(set)
    for op in schedule.operations:
        if op.step == schedule.steps and op.phase is Phase.FORWARD:
            for i in op.reads:
                readers[i].add(block_of(op.module, paths))
    return readers
