"""Hollow tensors: plain CPU tensors whose storage has a size and no memory.

The model under trace sees ordinary tensors: their type is ``torch.Tensor`` (or
``nn.Parameter``), their device is "cpu", so every choice that the model, an optimizer or
a composite operator makes by looking at them is the one it makes for real CPU tensors.
(A FakeTensor is recognised: transformers takes another branch for its masks, torch.optim
another default.) Views are made by torch's own kernels, which touch no data, so aliasing,
version counters and autograd's view tracking are real. Nothing can read or write a hollow
tensor's data: torch raises where Python asks for it (``tolist``, ``numpy``, ``data_ptr``),
and the recorder answers every operator itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from graphmem.targets import Layout

_CPU = torch.device("cpu")


def hollow_storage(nbytes: int) -> torch.UntypedStorage:
    """A CPU storage of ``nbytes`` bytes that owns no memory."""
    made: Any = torch._C._construct_storage_from_data_pointer(0, _CPU, nbytes)
    return cast(torch.UntypedStorage, made)


def on_storage(
    storage: torch.UntypedStorage,
    size: Sequence[int],
    stride: Sequence[int],
    dtype: torch.dtype,
    offset: int = 0,
) -> Tensor:
    """A tensor on a storage; ``stride`` and ``offset`` count elements.

    One without bytes has nothing to guard: in-place kernels may run on it.
    """
    tensor = torch.empty(0, dtype=dtype, device=_CPU)
    tensor.set_(storage, offset, size, stride)
    if storage.nbytes():
        torch._C._set_throw_on_mutable_data_ptr(tensor)
    return tensor


def hollow_like(meta: Tensor) -> Tensor:
    """A hollow tensor with the layout of ``meta``, on a storage of its own."""
    storage = hollow_storage(meta.untyped_storage().nbytes())
    offset = int(meta.storage_offset())
    return on_storage(storage, meta.size(), meta.stride(), meta.dtype, offset)


def hollow_results(value: Any) -> Any:
    """Nested ``Layout`` as hollow tensors; those of one alias share a storage."""
    return _hollow(value, {})


def _hollow(value: Any, storages: dict[int, torch.UntypedStorage]) -> Any:
    if isinstance(value, list):
        return [_hollow(item, storages) for item in value]
    if not isinstance(value, Layout):
        return value
    storage = storages.get(value.alias)
    if storage is None:
        storage = storages[value.alias] = hollow_storage(value.nbytes)
    return on_storage(storage, value.size, value.stride, value.dtype, value.offset)


def twin(tensor: Tensor) -> Tensor:
    """A meta tensor of the same size, stride and dtype, on a storage of its own."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")


def is_hollow(tensor: Tensor) -> bool:
    """Whether a tensor is a non-empty one without memory."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return False
    storage = tensor.untyped_storage()
    return storage.nbytes() > 0 and torch._C._data_address(tensor) == 0  # type: ignore[attr-defined]
