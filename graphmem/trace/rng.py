"""Random number generator states, which checkpointing keeps for its recomputation.

``torch.get_rng_state`` builds its tensor below the dispatcher, where no mode sees it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from graphmem.trace.recorder import Recorder
from graphmem.trace.replaced import replaced


@contextmanager
def states_recorded(recorder: Recorder) -> Iterator[None]:
    """Enter the tensors that ``torch.get_rng_state`` returns in the ledger.

    They lie in the host's memory: c10's CPUGeneratorImpl makes them with
    ``at::detail::empty_cpu``.
    """
    original = torch.random.get_rng_state

    def get_rng_state() -> Tensor:
        state = original()
        recorder.books.stray(state, "get_rng_state")
        return state

    with (
        replaced(torch.random, "get_rng_state", get_rng_state),
        replaced(torch, "get_rng_state", get_rng_state),
    ):
        yield
