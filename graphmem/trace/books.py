"""The books of a trace: who made which storage, when, and what each operator did.

``Books`` enters in the ledger what the recorder sees dispatched, and what comes into being
below the dispatcher: the user's tensors, strays, kernels of others, storages that are resized.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphmem.schedule import Category, Scratch
from graphmem.trace import known
from graphmem.trace.ledger import Call, Entry, Ledger
from graphmem.trace.moments import Moment, Moments
from graphmem.trace.streams import Streams

_UNSEEN = "aten.lift_fresh"
"""What happens below the dispatcher happens as if this operator were called."""


class Books:
    """Enters storages and operations in a ledger, with their moments."""

    def __init__(self, moments: Moments) -> None:
        self.ledger = Ledger()
        self._moments = moments
        self._streams = Streams()

    def adopt(self, tensor: Tensor, category: Category, module: str, name: str | None) -> Entry:
        """Enter what stands in memory before the first operation."""
        entry = self.ledger.find(tensor)
        if entry is None:
            entry = self.ledger.enter(
                tensor, born=-1, op=None, module=module, source=None, name=name
            )
            entry.known = known.is_real(tensor) and known.is_small(tensor)
        entry.claim(category)
        return entry

    def claim(self, value: object, category: Category) -> None:
        """Give every tensor in a nested value a category."""
        for entry in self.ledger.entries_of(value):
            entry.claim(category)

    def saved(self, tensor: Tensor, module: str) -> None:
        """Note that autograd saves a tensor on behalf of a module."""
        for entry in self.ledger.entries_of(tensor):
            entry.claim(Category.SAVED_FOR_BACKWARD)
            if entry.saved_by is None:
                entry.saved_by = module

    def foreign(
        self, name: str, given: Any, result: Any, scratch: int, *, writes: bool = False
    ) -> None:
        """Enter a kernel that the dispatcher does not see (``kernels``).

        Args:
            given: its arguments; ``writes`` says that it may write on all of them.
            result: its results; tensors among the arguments are written and returned.
            scratch: the bytes that it allocates for itself.
        """
        inputs = self.entries(given)
        moment = self._moments.now(_UNSEEN)
        allocated = []
        for part in known.parts_in(result):
            if self.ledger.find(part) is None:
                allocated.append(self.enter(part, name, moment))
        returned = [entry for entry in self.ledger.entries_of(result) if entry not in allocated]
        written = inputs if writes else returned
        for entry in written:
            entry.known = False
        self.add(name, moment, inputs, written, allocated, ((scratch,),) if scratch else ())

    def resized(self, storage: torch.UntypedStorage, old: Entry, nbytes: int) -> None:
        """Enter that a storage takes other memory, or none, without a tensor's death."""
        moment = self._moments.now(_UNSEEN)
        made = self.ledger.resized(storage, old, nbytes)
        made.stream = self._streams.current()
        self.add("torch.UntypedStorage.resize_", moment, [], [], [made])
        self.ledger.close(old)

    def entries(self, arguments: Any) -> list[Entry]:
        """The entries of all tensors in arguments, entering the ones never seen before."""
        return [self._entry(part) for part in known.parts_in(arguments)]

    def _entry(self, part: Tensor) -> Entry:
        entry = self.ledger.find(part)
        return entry if entry is not None else self.stray(part)

    def stray(self, tensor: Tensor, target: str = "torch.tensor") -> Entry:
        """Enter a tensor that came into being below the dispatcher, on the host."""
        moment = self._moments.now(_UNSEEN)
        entry = self.enter(tensor, target, moment)
        entry.known = known.is_real(tensor) and known.is_small(tensor)
        entry.host = entry.foreign = True
        self.add(target, moment, [], [], [entry])
        return entry

    def enter(self, tensor: Tensor, op: str, moment: Moment) -> Entry:
        """Enter a new storage, which an operator makes."""
        place = moment.place
        entry = self.ledger.enter(
            tensor, born=len(self.ledger.calls), op=op, module=place.module, source=place.source
        )
        entry.forward = moment.forward
        entry.stream = self._streams.current()
        entry.generated, entry.fused = self._moments.generated, self._moments.fused
        return entry

    def add(
        self,
        target: str,
        moment: Moment,
        inputs: list[Entry],
        written: list[Entry],
        allocated: list[Entry],
        scratch: Scratch = (),
    ) -> None:
        """Add an operation."""
        self.ledger.add(
            Call(
                target=target,
                phase=moment.phase,
                step=self._moments.step,
                module=moment.place.module,
                source=moment.place.source,
                reads=tuple(dict.fromkeys(entry.id for entry in inputs)),
                writes=tuple(entry.id for entry in written),
                allocates=tuple(entry.id for entry in allocated),
                scratch=scratch,
                recomputes=moment.recomputes,
            )
        )
