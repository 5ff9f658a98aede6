"""Where a tensor's elements lie, without a tensor."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Layout(NamedTuple):
    """``stride`` and ``offset`` count elements.

    ``nbytes`` is the size of the storage, ``alias`` the number of the storage among an
    operator's results (two results may share one).
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    nbytes: int
    alias: int

    @property
    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.size)


def layouts(value: Any) -> Any:
    """Nested lists and tuples with a ``Layout`` in place of every strided tensor."""
    return _layouts(value, {})


def on_meta(value: Any) -> Any:
    """Nested lists and tuples with a meta tensor in place of every ``Layout``."""
    if isinstance(value, Layout):
        return torch.empty_strided(value.size, value.stride, dtype=value.dtype, device="meta")
    if isinstance(value, list):
        return [on_meta(item) for item in value]
    if isinstance(value, tuple):
        return tuple([on_meta(item) for item in value])
    return value


def _layouts(value: Any, storages: dict[int, int]) -> Any:
    if isinstance(value, Tensor):
        return _layout(value, storages)
    if isinstance(value, Layout):
        return value
    if isinstance(value, list):
        return [_layouts(item, storages) for item in value]
    if isinstance(value, tuple):
        return tuple([_layouts(item, storages) for item in value])
    return value


def _layout(tensor: Tensor, storages: dict[int, int]) -> Layout:
    storage = tensor.untyped_storage()
    return Layout(
        tuple(tensor.size()),
        tensor.stride(),
        tensor.dtype,
        int(tensor.storage_offset()),
        storage.nbytes(),
        storages.setdefault(storage._cdata, len(storages)),
    )
