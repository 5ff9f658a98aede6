"""What is known of the values of what operators make and write.

A result is known where torch's own kernel computed it from known inputs, an argument that is
written where all that went in is known; new memory that is filled part by part, once no part is
left. What rests on an assumption says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem.schedule import Category, Unknown
from graphmem.trace import known
from graphmem.trace.ledger import Entry
from graphmem.trace.moments import Moment
from graphmem.trace.operator import Dispatched


@dataclass(frozen=True, slots=True)
class Given:
    """What an operator is given, looked at once: an optimizer's has thousands of inputs.

    ``deciding`` are the entries whose values decide the result: none where only a shape does.
    ``known`` says that all values are, ``decided`` that those are. ``on_host``: the operator
    works in the host's memory, its kernels are not the GPU's. ``rests_on`` is what was assumed
    of the values.
    """

    entries: list[Entry]
    deciding: list[Entry]
    known: bool
    decided: bool
    on_host: bool
    rests_on: Unknown | None

    @classmethod
    def to(cls, call: Dispatched, entries: list[Entry]) -> Given:
        """What a call is given, the tensors with these entries."""
        all_known = all(entry.known for entry in entries)
        only_shape = _is_shaped_like(call)
        return cls(
            entries=entries,
            deciding=[] if only_shape else entries,
            known=all_known,
            decided=all_known or only_shape,
            on_host=bool(entries) and all(entry.host for entry in entries),
            rests_on=next((e.rests_on for e in entries if e.rests_on is not None), None),
        )


def _is_shaped_like(call: Dispatched) -> bool:
    """Whether integers or truth values are made in the shape of a tensor, whatever it holds."""
    if not call.operator.ignores_values:
        return False
    dtype: torch.dtype = call.kwargs.get("dtype") or call.args[0].dtype
    return not (dtype.is_floating_point or dtype.is_complex)


def _may_be_known(tensor: Tensor) -> bool:
    is_plain = tensor.layout is torch.strided and known.is_whole(tensor)
    return is_plain and known.is_real(tensor) and known.is_small(tensor)


def forget(tensor: Tensor, entries: Sequence[Entry]) -> None:
    """Before a tensor is filled: that its values are unknown says nothing more.

    Of a view, if what else was written on the storage is known.
    """
    for entry in entries:
        if entry.open is not None or (not entry.foreign and _may_be_known(tensor)):
            entry.known, entry.rests_on = True, None


def _fill(entry: Entry, filled: Tensor | None) -> None:
    """Part of new memory was written: it stays open while that is known and not all of it."""
    if filled is None or not entry.known or entry.open is None:
        entry.known, entry.open = False, None
        return
    entry.known = entry.open.fill(filled)
    if entry.known:
        entry.open = None


def spoil(
    written: Sequence[Entry], given: Given, moment: Moment, filled: Tensor | None = None
) -> None:
    """What was written is known only if all that went in is; backward reads what was saved.

    ``filled`` is the tensor of which each element was.
    """
    for entry in written:
        entry.known = entry.known and given.known
        if entry.open is not None:
            _fill(entry, filled)
        entry.rests_on = entry.rests_on or given.rests_on
        entry.most = None
        entry.node = moment.number
    if moment.node is not None and not moment.forward:
        for entry in given.entries:
            if entry.forward:  # forward made it and kept it for backward, however
                entry.claim(Category.SAVED_FOR_BACKWARD)
