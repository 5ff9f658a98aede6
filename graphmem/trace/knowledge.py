"""What is known of the values of what operators make and write.

A result is known where torch's own kernel computed it from known inputs, an argument that is
written where all that went in is known. What rests on an assumption says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from graphmem.schedule import Category, Unknown
from graphmem.trace import known
from graphmem.trace.ledger import Entry
from graphmem.trace.moments import Moment
from graphmem.trace.operator import Dispatched


def all_on_host(inputs: Sequence[Entry]) -> bool:
    """Whether an operator works in the host's memory: its kernels are not the GPU's."""
    return bool(inputs) and all(entry.host for entry in inputs)


def is_shaped_like(call: Dispatched) -> bool:
    """Whether integers or truth values are made in the shape of a tensor, whatever it holds."""
    if not call.operator.ignores_values:
        return False
    dtype: torch.dtype = call.kwargs.get("dtype") or call.args[0].dtype
    return not (dtype.is_floating_point or dtype.is_complex)


def _may_be_known(tensor: Tensor) -> bool:
    is_plain = tensor.layout is torch.strided and known.is_whole(tensor)
    return is_plain and known.is_real(tensor) and known.is_small(tensor)


def forget(tensor: Tensor, entries: Sequence[Entry]) -> None:
    """Before the whole of a tensor is filled: that its values are unknown says nothing more."""
    for entry in entries:
        if not entry.foreign and _may_be_known(tensor):
            entry.known, entry.rests_on = True, None


def spoil(written: Sequence[Entry], inputs: Sequence[Entry], moment: Moment) -> None:
    """What was written is known only if all that went in is; backward reads what was saved."""
    all_known = all(entry.known for entry in inputs)
    for entry in written:
        entry.known = entry.known and all_known
        entry.rests_on = entry.rests_on or resting(inputs)
        entry.most = None
        entry.node = moment.number
    if moment.node is not None and not moment.forward:
        for entry in inputs:
            if entry.forward:  # forward made it and kept it for backward, however
                entry.claim(Category.SAVED_FOR_BACKWARD)


def resting(inputs: Sequence[Entry]) -> Unknown | None:
    """What was assumed of the values of some inputs."""
    return next((entry.rests_on for entry in inputs if entry.rests_on is not None), None)
