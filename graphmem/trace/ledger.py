"""The ledger: every storage and operation of a trace, as they happen.

A storage is entered when the first tensor on it is seen, and struck out by a finalizer
when the last reference to it goes, whoever held it: Python, autograd or the engine.
``Ledger.schedule`` freezes the whole into a ``Schedule``.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache

import torch
from torch import Tensor, UntypedStorage
from torch.nn.parameter import is_lazy

from graphmem.schedule import (
    BEFORE,
    Category,
    Choice,
    Module,
    Operation,
    Phase,
    Schedule,
    Scratch,
    Storage,
    Unknown,
)
from graphmem.trace import known
from graphmem.trace.known import Open

# Of two claims on one storage, the earlier in this order wins.
_PRECEDENCE = {
    category: rank
    for rank, category in enumerate(
        (
            Category.PARAMETERS,
            Category.BUFFERS,
            Category.OPTIMIZER_STATES,
            Category.GRADIENTS,
            Category.INPUTS,
            Category.SAVED_FOR_BACKWARD,
            Category.OUTPUTS,
            Category.TEMPORARIES,
            Category.WORKSPACES,
        )
    )
}


@cache
def _dtype_name(dtype: torch.dtype) -> str:
    """``float32``, one string for all storages."""
    return str(dtype).removeprefix("torch.")


@dataclass(slots=True, weakref_slot=True)
class Entry:
    """One storage while it is being recorded; fields as in ``Storage``.

    ``known`` says that its real values are there, ``open`` which of them nothing was written on,
    if all others are known; ``node`` is the sequence number of the
    autograd node that wrote it last, None outside of backward; ``forward`` whether forward
    made it; ``compared`` what a comparison of unknown values is assumed to give;
    ``foreign`` that it is the user's own memory; ``rests_on`` what was assumed of its
    known values; ``most`` the largest of its unknown integers; ``generated`` and ``fused`` as
    in ``Storage``. ``settled`` says that no claim changes the category, ``resized`` that the
    storage had another size before.
    """

    id: int
    nbytes: int
    shape: tuple[int, ...]
    dtype: str
    op: str | None
    module: str
    source: str | None
    born: int
    last_use: int
    category: Category = Category.TEMPORARIES
    freed: int | None = None
    saved_by: str | None = None
    host: bool = False
    name: str | None = None
    known: bool = False
    open: Open | None = None
    node: int | None = None
    forward: bool = True
    compared: bool | None = None
    foreign: bool = False
    generated: bool = False
    fused: bool = False
    stream: int = 0
    rests_on: Unknown | None = None
    most: int | None = None
    settled: bool = False
    resized: bool = False
    watch: weakref.ref[UntypedStorage] | None = field(default=None, repr=False)

    def claim(self, category: Category) -> None:
        """Give the storage a category, unless a stronger claim stands."""
        if not self.settled and _PRECEDENCE[category] < _PRECEDENCE[self.category]:
            self.category = category

    def settle(self, category: Category) -> None:
        """Give the storage a category for good."""
        self.category, self.settled = category, True


@dataclass(slots=True)
class Call:
    """One operation while it is being recorded; fields as in ``Operation``."""

    target: str
    phase: Phase
    step: int
    module: str
    source: str | None
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    allocates: tuple[int, ...]
    scratch: Scratch = ()
    recomputes: str | None = None


class Ledger:
    """The storages and operations of one trace."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.calls: list[Call] = []
        self.unknown: dict[Unknown, None] = {}
        self.numbers: dict[int, int] = {}  # Entry.id -> Storage.id, once there is a schedule
        self._alive: dict[int, Entry] = {}  # by the address of the C++ storage

    def find(self, tensor: Tensor) -> Entry | None:
        """The entry of a tensor's storage, if the ledger has it."""
        return self._alive.get(tensor.untyped_storage()._cdata)

    def of_storage(self, storage: UntypedStorage) -> Entry | None:
        """The entry of a storage, if the ledger has it."""
        return self._alive.get(storage._cdata)

    def entries_of(self, value: object) -> Iterator[Entry]:
        """The entries of all tensors in a nested value that the ledger has."""
        for part in known.parts_in(value):
            entry = self.find(part)
            if entry is not None:
                yield entry

    def enter(
        self,
        tensor: Tensor,
        *,
        born: int,
        op: str | None,
        module: str,
        source: str | None,
        category: Category = Category.TEMPORARIES,
        name: str | None = None,
    ) -> Entry:
        """Enter the storage of a tensor, which must be new, and watch for its death."""
        storage = tensor.untyped_storage()
        entry = Entry(
            id=len(self.entries),
            nbytes=storage.nbytes(),
            shape=() if is_lazy(tensor) else tuple(tensor.shape),
            dtype=_dtype_name(tensor.dtype),
            op=op,
            module=module,
            source=source,
            born=born,
            last_use=born,
            category=category,
            name=name,
        )
        self._begin(entry, storage)
        return entry

    def _begin(self, entry: Entry, storage: UntypedStorage) -> None:
        """Take in an entry, and watch for the death of its storage."""
        key = storage._cdata
        self.entries.append(entry)
        self._alive[key] = entry

        def died(_: object) -> None:
            if self._alive.get(key) is entry:
                del self._alive[key]
            self.close(entry)

        entry.watch = weakref.ref(storage, died)

    def resized(self, storage: UntypedStorage, old: Entry, nbytes: int) -> Entry:
        """Enter a storage anew that has another size now; what it was is left to be closed."""
        born = len(self.calls)
        number = len(self.entries)
        entry = replace(old, id=number, nbytes=nbytes, born=born, last_use=born, watch=None)
        entry.freed, entry.known, entry.resized = None, False, True
        self._begin(entry, storage)
        return entry

    def enter_bytes(
        self,
        nbytes: int,
        *,
        born: int,
        op: str | None,
        module: str,
        category: Category = Category.WORKSPACES,
        name: str | None = None,
    ) -> Entry:
        """Enter bytes that a library takes and keeps; no tensor is on them."""
        entry = Entry(
            id=len(self.entries),
            nbytes=nbytes,
            shape=(nbytes,),
            dtype="uint8",
            op=op,
            module=module,
            source=None,
            born=born,
            last_use=born,
            category=category,
            name=name,
        )
        self.entries.append(entry)
        return entry

    def close(self, entry: Entry) -> None:
        """Note that a storage dies now: after the latest operation."""
        if entry.freed is None:
            entry.freed = max(len(self.calls) - 1, entry.born)
        entry.watch = None

    def alive(self) -> list[Entry]:
        """The entries of all storages that live now."""
        return list(self._alive.values())

    def add(self, call: Call) -> int:
        """Append an operation; returns its index."""
        index = len(self.calls)
        self.calls.append(call)
        for ids in (call.reads, call.writes):
            for i in ids:
                self.entries[i].last_use = index
        return index

    def note(self, unknown: Unknown) -> None:
        """Add to what could not be known; the same note twice counts once."""
        self.unknown[unknown] = None

    def schedule(
        self, modules: Iterable[Module], steps: int, choices: tuple[Choice, ...] = ()
    ) -> Schedule:
        """Freeze everything into a schedule; storages still alive have no death.

        What died before the first operation was never part of the run and is left out.
        """
        kept = [e for e in self.entries if e.freed is None or e.freed > BEFORE]
        numbers = self.numbers = {entry.id: position for position, entry in enumerate(kept)}
        frees: dict[int, list[int]] = {}
        for entry in kept:
            if entry.freed is not None:
                frees.setdefault(entry.freed, []).append(numbers[entry.id])
        return Schedule(
            operations=tuple(
                _frozen_call(index, call, numbers, frees.get(index, ()))
                for index, call in enumerate(self.calls)
            ),
            storages=tuple(_frozen_entry(entry, numbers[entry.id]) for entry in kept),
            modules=tuple(modules),
            steps=steps,
            unknown=tuple(self.unknown),
            choices=choices,
        )


def _frozen_call(
    index: int, call: Call, numbers: dict[int, int], frees: Iterable[int]
) -> Operation:
    def renumber(ids: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(numbers[i] for i in ids)

    return Operation(
        index=index,
        target=call.target,
        phase=call.phase,
        step=call.step,
        module=call.module,
        source=call.source,
        reads=renumber(call.reads),
        writes=renumber(call.writes),
        allocates=renumber(call.allocates),
        frees=tuple(frees),
        scratch=call.scratch,
        recomputes=call.recomputes,
    )


def _frozen_entry(entry: Entry, number: int) -> Storage:
    return Storage(
        id=number,
        nbytes=entry.nbytes,
        category=entry.category,
        shape=entry.shape,
        dtype=entry.dtype,
        op=entry.op,
        module=entry.module,
        source=entry.source,
        born=entry.born,
        last_use=entry.last_use,
        freed=entry.freed,
        saved_by=entry.saved_by,
        host=entry.host,
        name=entry.name,
        generated=entry.generated,
        fused=entry.fused,
        stream=entry.stream,
    )
