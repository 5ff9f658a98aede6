"""The techniques that a plan tries: one idea a file, one entry here.

Each is a function of the run that gives the techniques which make sense for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from graphmem.plans.candidates import (
    adapters,
    allocator,
    checkpointing,
    chunked_loss,
    frozen,
    gradients,
    layouts,
    micro_batches,
    offloading,
    optimizer_step,
    optimizers,
    precision,
    ranks,
)
from graphmem.plans.technique import Run, Technique

CANDIDATES: tuple[Callable[[Run], Iterator[Technique]], ...] = (
    allocator.techniques,
    gradients.techniques,
    layouts.techniques,
    optimizer_step.techniques,
    micro_batches.techniques,
    chunked_loss.techniques,
    checkpointing.techniques,
    offloading.techniques,
    precision.techniques,
    optimizers.techniques,
    adapters.techniques,
    frozen.techniques,
    ranks.techniques,
)
"""In the order in which equally cheap ones are tried."""


def techniques(run: Run) -> list[Technique]:
    """All techniques that make sense for a run."""
    return [technique for candidate in CANDIDATES for technique in candidate(run)]
