"""A batch as a DataLoader would give it, without taking one from it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from graphmem.errors import UsageError


def example_batch(loader: Any, batch_size: int | None = None) -> Any:
    """The first items of a DataLoader's dataset, collated by its own function.

    The random numbers that items draw are given back, and no worker is started.

    Args:
        batch_size: how many; None takes the loader's.

    Raises:
        UsageError: for a dataset without a length, of which nothing can be taken twice.
    """
    dataset = getattr(loader, "dataset", None)
    if dataset is None or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise UsageError("the dataset can't be looked into: give the callback inputs=, a batch")
    count = min(batch_size or loader.batch_size or 1, len(dataset))
    with _random_numbers_kept():
        return loader.collate_fn([dataset[i] for i in range(count)])


@contextmanager
def _random_numbers_kept() -> Iterator[None]:
    python, numpy_ = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy_)
