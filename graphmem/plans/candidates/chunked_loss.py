"""The loss in chunks: logits of a large vocabulary are never there as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from graphmem.plans.technique import Loses, Run, Technique
from graphmem.schedule import Category

_CHUNKS = 8


def techniques(run: Run) -> Iterator[Technique]:
    """Eight chunks, of a model whose losses are of a vocabulary."""
    if run.options.chunked_loss is None and _has_logits(run):
        yield Technique(
            name=f"loss in {_CHUNKS} chunks",
            loses=Loses.RECOMPUTATION,
            cost="the head's product once more",
            flag=f"--chunked-loss {_CHUNKS}",
            code="checkpoint(head_and_loss, chunk) for each chunk of the tokens",
            change={"chunked_loss": _CHUNKS},
            least={
                Category.SAVED_FOR_BACKWARD: 0.0,
                Category.OUTPUTS: 0.0,
                Category.TEMPORARIES: 0.0,
            },
        )


def _has_logits(run: Run) -> bool:
    """Whether the loss is a cross-entropy of the model's own."""
    return any(op.target.startswith("aten.nll_loss_forward") for op in run.schedule.operations)
