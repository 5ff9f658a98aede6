"""Schedules in one line, and random ones.

``build(op({"a": 8}), op(reads="a", frees="a"), before={"w": 4})``: storages go by names
and are numbered in the order in which they appear, those from before the first operation
first. Birth, last use and death follow from the operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from hypothesis import strategies as st

from graphmem.schedule import (
    BEFORE,
    TOP_LEVEL,
    Category,
    Module,
    Operation,
    Phase,
    Schedule,
    Storage,
    Unknown,
)

PATHS = (TOP_LEVEL, "net.0", "net.1")
"""The modules of random schedules; the first two of them stand in the table of modules."""

# -- by hand


def tensor(nbytes: int, category: Category = Category.TEMPORARIES, **traits: Any) -> Storage:
    """A storage without a place in a schedule; ``traits`` are further fields of it."""
    base = Storage(0, nbytes, category, (nbytes,), "uint8", None, TOP_LEVEL, None, 0, 0, None)
    return replace(base, **traits)


New = Mapping[str, int | Storage]
"""Storages by name: their bytes, or a ``tensor``."""


@dataclass(frozen=True)
class Op:
    """An operation without its index; storages by name, separated by spaces."""

    new: New
    reads: str
    writes: str
    frees: str
    traits: Mapping[str, Any] = field(default_factory=dict)


def op(
    new: New | None = None, *, reads: str = "", writes: str = "", frees: str = "", **traits: Any
) -> Op:
    """One operation; ``traits`` are further fields of it."""
    return Op(new or {}, reads, writes, frees, traits)


def build(
    *ops: Op,
    before: New | None = None,
    modules: tuple[Module, ...] = (),
    unknown: tuple[Unknown, ...] = (),
) -> Schedule:
    """The schedule of some operations, with what stood in memory ``before`` them."""
    born = {name: (BEFORE, what) for name, what in (before or {}).items()}
    for index, each in enumerate(ops):
        born |= {name: (index, what) for name, what in each.new.items()}
    ids = {name: number for number, name in enumerate(born)}
    last_use = {name: index for name, (index, _) in born.items()}
    freed: dict[str, int] = {}
    for index, each in enumerate(ops):
        last_use |= dict.fromkeys((each.reads + " " + each.writes).split(), index)
        freed |= dict.fromkeys(each.frees.split(), index)
    return Schedule(
        tuple(_operation(index, each, ids) for index, each in enumerate(ops)),
        tuple(
            replace(
                what if isinstance(what, Storage) else tensor(what),
                id=ids[name],
                name=name,
                born=index,
                last_use=last_use[name],
                freed=freed.get(name),
            )
            for name, (index, what) in born.items()
        ),
        modules,
        max((each.traits.get("step", 1) for each in ops), default=1),
        unknown,
    )


def _operation(index: int, each: Op, ids: Mapping[str, int]) -> Operation:
    def numbers(names: str) -> tuple[int, ...]:
        return tuple(ids[name] for name in names.split())

    base = Operation(
        index=index,
        target="aten.mm",
        phase=Phase.FORWARD,
        step=1,
        module=TOP_LEVEL,
        source=None,
        reads=numbers(each.reads),
        writes=numbers(each.writes),
        allocates=tuple(ids[name] for name in each.new),
        frees=numbers(each.frees),
    )
    return replace(base, **each.traits)


# -- at random

# Drawn as a whole and made once: quicker than a draw for each field.
_OPERATIONS = st.sampled_from(
    [
        Operation(0, "aten.mm", phase, step, module, source, scratch=scratch)
        for step, phase, module, source, scratch in product(
            (1, 2, 3), Phase, PATHS, (None, "net.py:1"), ((), ((4,),), ((4, 700), (513,)))
        )
    ]
)
_STORAGES = st.sampled_from(
    [
        tensor(nbytes, category, module=module, saved_by=saved_by, host=host)
        for nbytes, category, module, saved_by, host in product(
            (0, 1, 4, 511, 512, 513, 2000),  # few, so that peaks are often equal
            Category,
            PATHS,
            (None, *PATHS),
            (False, False, True),
        )
    ]
)
_LISTS = st.tuples(st.lists(_OPERATIONS, min_size=1, max_size=6), st.lists(_STORAGES, max_size=6))


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Valid schedules: lifetimes are drawn first, and the operations made to agree with them.

    Storages were there before, or are never freed, never used, empty, or in host memory.
    """
    ops, prototypes = draw(_LISTS)
    ops.sort(key=lambda each: each.step)
    reads: list[set[int]] = []
    writes: list[set[int]] = []
    storages: list[Storage] = []
    for what in prototypes:
        born = draw(st.integers(BEFORE, len(ops) - 1))
        end = draw(st.integers(max(born, 0), len(ops)))
        freed = end if end < len(ops) else None
        life = range(max(born, 0), min(end + 1, len(ops)))
        reads.append(_some(draw, life))
        writes.append(_some(draw, life))
        last_use = max({born} | reads[-1] | writes[-1])
        number = len(storages)
        storages.append(replace(what, id=number, born=born, last_use=last_use, freed=freed))
    return Schedule(
        operations=tuple(
            replace(
                each,
                index=i,
                reads=tuple(n for n, used in enumerate(reads) if i in used),
                writes=tuple(n for n, used in enumerate(writes) if i in used),
                allocates=tuple(s.id for s in storages if s.born == i),
                frees=tuple(s.id for s in storages if s.freed == i),
            )
            for i, each in enumerate(ops)
        ),
        storages=tuple(storages),
        modules=tuple(Module(path, "Linear", 1, 2, 8, 4) for path in PATHS[:2]),
        steps=ops[-1].step,
    )


def _some(draw: st.DrawFn, indices: range) -> set[int]:
    """Some of the indices, or none; bit by bit of one number."""
    bits = draw(st.integers(0, 2 ** len(indices) - 1))
    return {index for bit, index in enumerate(indices) if bits >> bit & 1}
