"""Code that names a GPU, traced where there is none, with the same result everywhere.

A traced step lives on hollow CPU tensors that stand for the target's. Code that says
``.cuda()`` or ``device="cuda"`` is noticed (``GPUNamed``), and the trace is started again
under ``sources.without_gpu.WithoutGPU``, which drops the name: a tensor is then left where
it is, unless it lies on the host (a batch of a DataLoader): then it is copied, as for real.
The mode is not on from the start because it costs time, and because torch's own
modules look whether one is on (``nn.TransformerEncoderLayer``'s fast path).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor

from graphmem.sources.without_gpu import WithoutGPU, moves_to_gpu
from graphmem.trace.replaced import replaced
from graphmem.trace.streams import inert_streams

T = TypeVar("T")


class WithoutNames(WithoutGPU):
    """Drops the GPU from every call that names one.

    Streams are inert. ``is_host`` says whether a tensor lies on the host; ``arrived`` is told
    of copies that do not any more. A session gives both.
    """

    def __enter__(self) -> WithoutNames:
        self._streams = inert_streams()
        self._streams.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._streams.__exit__(None, None, None)

    is_host: Callable[[Tensor], bool] = staticmethod(lambda tensor: False)
    arrived: Callable[[Tensor], None] = staticmethod(lambda tensor: None)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is Tensor.record_stream:
            return None
        result = super().__torch_function__(func, types, args, kwargs)
        if func not in (Tensor.to, Tensor.cuda) or not moves_to_gpu(func, args, kwargs or {}):
            return result
        if self.is_host(args[0]):
            result = result.clone() if result is args[0] else result
            self.arrived(result)
        return result


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
        return run(WithoutNames())


@contextmanager
def gpu_noticed() -> Iterator[None]:
    """Raise ``GPUNamed`` where torch would turn to CUDA."""

    def named() -> None:
        raise GPUNamed

    with replaced(torch.cuda, "_lazy_init", named):
        yield
