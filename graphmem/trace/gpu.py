"""Code that names a GPU, traced where there is none, with the same result everywhere.

A traced step lives on hollow CPU tensors that stand for the target's. Code that says
``.cuda()`` or ``device="cuda"`` is noticed (``GPUNamed``), and the trace is started again
under ``sources.without_gpu.WithoutGPU``, which drops the name: a tensor is then left where
it is. The mode is not on from the start because it costs time, and because torch's own
modules look whether one is on (``nn.TransformerEncoderLayer``'s fast path).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch

from graphmem.sources.without_gpu import WithoutGPU

T = TypeVar("T")


class GPUNamed(BaseException):
    """The code under trace names a GPU. No Exception, so that no user code catches it."""


def without_names(run: Callable[[AbstractContextManager[Any]], T]) -> T:
    """Run a trace, and if its code names a GPU once more with the names dropped.

    Args:
        run: takes the context in which the user's code is to be run.
    """
    try:
        return run(nullcontext())
    except GPUNamed:
        return run(WithoutGPU())


@contextmanager
def gpu_noticed() -> Iterator[None]:
    """Raise ``GPUNamed`` where torch would turn to CUDA."""
    cuda: Any = torch.cuda
    lazy_init = cuda._lazy_init

    def named() -> None:
        raise GPUNamed

    cuda._lazy_init = named
    try:
        yield
    finally:
        cuda._lazy_init = lazy_init
