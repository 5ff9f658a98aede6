"""Known values: which tensors have real data, and which are small enough to compute.

Small tensors whose values follow from known ones (sizes, position ids, masks, lengths)
are computed for real, because models branch on them. Everything else is hollow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from graphmem.targets import Layout
from graphmem.trace.hollow import is_hollow

# How many elements are worth computing. A mask of 2,048 x 2,048 positions still is (16 to
# 32 MiB). Trades time and our own memory for fewer questions to the user; no prediction
# depends on it.
MOST_ELEMENTS = 1 << 22

MOST_CONSTANTS = 1 << 12
"""How many floats that a module holds beside its weights are taken for numbers that the model
computes with, such as strides or bounds: their values are kept. Trades as the above does.
"""


def is_small(tensor: Tensor) -> bool:
    """Whether a tensor has few enough elements for its values to be worth keeping."""
    return tensor.numel() <= MOST_ELEMENTS


def is_real(tensor: Tensor) -> bool:
    """Whether a tensor has data: it lies on the CPU and is not hollow."""
    return tensor.device.type == "cpu" and not is_hollow(tensor)


def is_whole(tensor: Tensor) -> bool:
    """Whether a tensor's elements are all that its storage holds."""
    nbytes = tensor.numel() * tensor.element_size()
    return nbytes == tensor.untyped_storage().nbytes() and tensor.stride().count(0) == 0


class Open:
    """Which elements of a storage nothing was written on, since ``empty`` made it."""

    def __init__(self, whole: Tensor) -> None:
        self._is_open = torch.ones(whole.numel(), dtype=torch.bool)
        self._count = whole.numel()

    def fill(self, part: Tensor) -> bool:
        """Take note of a view that was filled; whether nothing is open any more."""
        nbytes = part.untyped_storage().nbytes()
        if nbytes != self._is_open.numel() * part.element_size():  # it looks at other elements
            return False
        seen = self._is_open.as_strided(part.size(), part.stride(), int(part.storage_offset()))
        self._count -= int(seen.count_nonzero())
        seen.fill_(False)
        return self._count == 0


def is_open(tensor: Tensor) -> bool:
    """Whether it is worth following what parts of a new tensor are filled."""
    counts = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
    return counts and is_real(tensor) and is_small(tensor) and is_whole(tensor)


def all_small(layout: Any, most: int = MOST_ELEMENTS) -> bool:
    """Whether every tensor in the layout of an operator's result has no more elements."""
    return all(item.numel <= most for item in layouts_in(layout))


def layouts_in(value: Any) -> Iterator[Layout]:
    """The layouts in nested lists and tuples."""
    if isinstance(value, Layout):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from layouts_in(item)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in nested lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def parts_in(value: Any) -> list[Tensor]:
    """The tensors that own the bytes of all tensors in a nested value."""
    found: list[Tensor] = []
    _gather(value, found)
    return found


def _gather(value: Any, found: list[Tensor]) -> None:
    """``parts_in``, which every operator asks for several times: without generators."""
    kind = type(value)
    if kind is Tensor or kind is Parameter:
        if value.layout is torch.strided:
            found.append(value)
        else:
            found.extend(strided_parts(value))
    elif kind is list or kind is tuple:
        for item in value:
            _gather(item, found)
    elif kind is dict:
        for item in value.values():
            _gather(item, found)
    elif kind not in _PLAIN:
        for tensor in tensors_in(value):
            found.extend(strided_parts(tensor))


_PLAIN = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device})


def strided_parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensors that own a tensor's bytes: itself, or what it is made of.

    Sparse tensors are made of indices and values, subclasses such as jagged nested tensors of
    what they say themselves.
    """
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()
        parts = (getattr(tensor, name) for name in names)
        return tuple(p for part in parts if isinstance(part, Tensor) for p in strided_parts(part))
    if tensor.layout is torch.strided:
        return (tensor,)
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        return _sparse_parts(tensor)


def _sparse_parts(tensor: Tensor) -> tuple[Tensor, ...]:
    if tensor.layout is torch.sparse_coo:
        return (tensor._indices(), tensor._values())
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return (tensor.crow_indices(), tensor.col_indices(), tensor.values())
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return (tensor.ccol_indices(), tensor.row_indices(), tensor.values())
    return ()
