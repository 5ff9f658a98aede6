"""Micro-batches: the same batch in parts whose gradients are summed."""

from __future__ import annotations

from collections.abc import Iterator

from graphmem.plans.technique import Loses, Run, Technique
from graphmem.schedule import Category

_PARTS = (2, 4, 8, 16)
_OF_A_BATCH = (
    Category.INPUTS,
    Category.SAVED_FOR_BACKWARD,
    Category.OUTPUTS,
    Category.TEMPORARIES,
)


def techniques(run: Run) -> Iterator[Technique]:
    """All parts that the batch has."""
    for parts in _PARTS:
        if run.batch is None or run.batch % parts:
            continue
        yield Technique(
            name=f"{parts} micro-batches",
            loses=Loses.NOTHING,
            cost="smaller kernels; batch norm sees a part of the batch",
            flag=f"--batch {run.batch // parts} --accumulate {run.options.accumulate * parts}",
            code=f"for part in batch.chunk({parts}): (loss(model(part)) / {parts}).backward()",
            change={"accumulate": run.options.accumulate * parts},
            least=dict.fromkeys(_OF_A_BATCH, 1 / parts),
            micro_batches=parts,
            family="micro-batches",
            strength=parts,
        )
