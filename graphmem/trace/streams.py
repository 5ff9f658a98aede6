"""CUDA's streams and events where there is no GPU: they order nothing, and are there to be named.

What runs on another stream has the same size. Not covered: the allocator keeps a pool of
blocks for each stream (of CUDA's own; ``Streams`` tells those that FSDP2 takes apart), and
``record_stream`` holds back a block that is freed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch

from graphmem.trace.replaced import replaced


class InertStream:
    """Stands for ``torch.cuda.Stream`` and ``torch.cuda.Event``: waiting ends at once."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("cuda", 0)

    def _nothing(self, *_: Any, **__: Any) -> None:
        """Nothing to wait for."""

    wait_stream = wait_event = synchronize = record = wait = _nothing

    def record_event(self, event: InertStream | None = None) -> InertStream:
        """The event, a new one if none is given."""
        return InertStream() if event is None else event

    def query(self) -> bool:
        """All work is done."""
        return True

    def elapsed_time(self, end: InertStream) -> float:
        """No time passes in an analysis."""
        return 0.0


@contextmanager
def inert_streams() -> Iterator[None]:
    """Streams and events in ``torch.cuda`` that need no GPU."""
    inert: dict[str, Any] = {
        "Stream": InertStream,
        "Event": InertStream,
        "stream": lambda stream: nullcontext(),
        "StreamContext": lambda stream: nullcontext(),
        "current_stream": lambda device=None: InertStream(),
        "default_stream": lambda device=None: InertStream(),
        "set_stream": lambda stream: None,
        "synchronize": lambda device=None: None,
    }
    with ExitStack() as stack:
        for name, value in inert.items():
            stack.enter_context(replaced(torch.cuda, name, value))
        yield


class Streams:
    """Numbers of the streams of ``torch.cpu``, which FSDP2 allocates on; 0 is the default.

    They do nothing, but tell which one is current: hollow tensors are the CPU's.
    """

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {torch.cpu.current_stream(): 0}

    def current(self) -> int:
        """The number of the current stream."""
        return self._numbers.setdefault(torch.cpu.current_stream(), len(self._numbers))
