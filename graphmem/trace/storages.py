"""Storages that Python copies as a whole, as ``copy.deepcopy`` of a buffer does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from graphmem.trace.recorder import Recorder


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

    cls.clone = clone
    try:
        yield
    finally:
        del cls.clone  # it is inherited
