"""Storages that Python handles as a whole.

It copies them, as ``copy.deepcopy`` of a buffer does, or resizes them, as FSDP does to let go
of memory while tensors are there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from graphmem.errors import TraceError
from graphmem.trace.recorder import Recorder
from graphmem.trace.replaced import replaced


@contextmanager
def cloned_as_tensors(recorder: Recorder) -> Iterator[None]:
    """Record ``UntypedStorage.clone`` as an operator: a hollow one has nothing to copy.

    Source: torch/_tensor.py, ``Tensor.__deepcopy__``, and torch/storage.py, ``_StorageBase.clone``
    (2.13): a new storage of as many bytes, on the same device.
    """
    cls: Any = torch.UntypedStorage
    original = cls.clone

    def clone(storage: torch.UntypedStorage) -> torch.UntypedStorage:
        if storage.device.type != "cpu":
            copied: torch.UntypedStorage = original(storage)
            return copied
        with recorder.paused():
            whole = torch.empty(0, dtype=torch.uint8).set_(storage)
        return whole.clone().untyped_storage()

    with replaced(cls, "clone", clone):  # it is inherited
        yield


@contextmanager
def resized_as_told(recorder: Recorder) -> Iterator[None]:
    """Record ``UntypedStorage.resize_``: what no dispatch mode sees.

    A hollow storage keeps the size that it was made with, which every tensor on it fits in;
    what it has now is in the ledger.
    """
    cls: Any = torch.UntypedStorage
    resize, size = cls.resize_, cls.size

    def resize_(storage: torch.UntypedStorage, nbytes: int) -> Any:
        entry = recorder.ledger.of_storage(storage)
        if entry is None:
            return resize(storage, nbytes)
        if storage.resizable():
            resize(storage, nbytes)
        elif nbytes > storage.nbytes():
            raise TraceError(f"a storage of {storage.nbytes()} bytes is resized to {nbytes}")
        recorder.books.resized(storage, entry, nbytes)
        return storage

    def size_now(storage: torch.UntypedStorage) -> int:
        entry = recorder.ledger.of_storage(storage)
        return entry.nbytes if entry is not None and entry.resized else int(size(storage))

    with replaced(cls, "resize_", resize_), replaced(cls, "size", size_now):
        yield
