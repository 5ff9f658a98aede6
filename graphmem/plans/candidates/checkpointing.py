"""Activation checkpointing: every block, or every other one."""

from __future__ import annotations

from collections.abc import Iterator

from graphmem.plans.blocks import patterns
from graphmem.plans.technique import Loses, Run, Technique
from graphmem.schedule import Category

NAME = "checkpoint every block"


def techniques(run: Run) -> Iterator[Technique]:
    """Every block; which of them suffice is found afterwards (``plans.checkpoints``)."""
    if run.options.checkpoint is None and run.blocks:
        yield technique(NAME, patterns(run.blocks))


def technique(name: str, checkpoint: str) -> Technique:
    """The checkpointing of what matches patterns."""
    return Technique(
        name=name,
        loses=Loses.RECOMPUTATION,
        cost="their forward once more",
        flag=f"--checkpoint '{checkpoint}'",
        code="block.forward = partial(checkpoint, block.forward, use_reentrant=False)",
        change={"checkpoint": checkpoint},
        least={Category.SAVED_FOR_BACKWARD: 0.0},
    )
