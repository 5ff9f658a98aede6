"""How a trace leaves what it has no part in: random numbers, and tensors that outlive it."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from graphmem.trace.hollow import is_hollow


@contextmanager
def random_state_kept() -> Iterator[None]:
    """A fixed seed inside, and every generator as it was afterwards."""
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = None if numpy is None else numpy.random.get_state()
    torch.default_generator.manual_seed(0)
    random.seed(0)
    try:
        yield
    finally:
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        if numpy is not None and numpy_state is not None:
            numpy.random.set_state(numpy_state)


def disarm_survivors() -> None:
    """Turn hollow tensors that outlive a trace into meta tensors.

    A list of losses that the user's own loop kept, or the frames of a traceback, would
    otherwise hold tensors that crash when a real kernel reads them.
    """
    for found in gc.get_objects():
        if type(found) in (Tensor, nn.Parameter) and is_hollow(found):
            _to_meta(found)


def _to_meta(tensor: Tensor) -> None:
    replacement = torch.empty_strided(
        tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta"
    )
    try:
        torch.utils.swap_tensors(tensor, replacement)
    except RuntimeError:  # something else holds it: leave it without elements instead
        tensor.data = torch.empty(0, dtype=tensor.dtype)
