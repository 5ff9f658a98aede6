"""Activation checkpointing: of every block, with or without its products' results."""

from __future__ import annotations

from collections.abc import Iterator

from graphmem.plans.blocks import Within, patterns
from graphmem.plans.technique import Loses, Run, Technique
from graphmem.schedule import Category

NAME = "checkpoint every block"

_FAMILY = "checkpoints"


def techniques(run: Run) -> Iterator[Technique]:
    """Selective ones, and whole ones; which blocks suffice is found afterwards.

    That is ``plans.checkpoints``.
    """
    if run.options.checkpoint is not None or not run.blocks:
        return
    matching = patterns(run.blocks)
    if run.products:
        yield _selective(matching, run)
    yield technique(NAME, matching, run)


def technique(name: str, checkpoint: str, run: Run) -> Technique:
    """The checkpointing of the blocks that match patterns."""
    return Technique(
        name=name,
        loses=Loses.RECOMPUTATION,
        cost="their forward once more",
        flag=f"--checkpoint '{checkpoint}'",
        code="block.forward = partial(checkpoint, block.forward, use_reentrant=False)",
        change={"checkpoint": checkpoint, "checkpoint_save": None},
        least={Category.SAVED_FOR_BACKWARD: 0.0},
        scope=Within(run.blocks),
        family=_FAMILY if name == NAME else "",
        strength=2,
    )


def _selective(checkpoint: str, run: Run) -> Technique:
    """As torch's own policies: what is dear to compute is kept, all else is made again."""
    saved = ",".join(run.products)
    return Technique(
        name="checkpoint all but products",
        loses=Loses.RECOMPUTATION,
        cost="what is between the products of a block once more",
        flag=f"--checkpoint '{checkpoint}' --checkpoint-save {saved}",
        code="checkpoint(block, x, use_reentrant=False, context_fn=partial("
        f"create_selective_checkpoint_contexts, [{', '.join(run.products)}]))",
        change={"checkpoint": checkpoint, "checkpoint_save": saved},
        least={Category.SAVED_FOR_BACKWARD: 0.0},
        likely={Category.SAVED_FOR_BACKWARD: 0.9},  # products make most of what is kept
        scope=Within(run.blocks),
        family=_FAMILY,
        strength=1,
    )
