"""The loss in chunks: logits of a large vocabulary are never there as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from graphmem.plans.technique import Loses, Run, Technique
from graphmem.schedule import Category, Storage

_CHUNKS = 8


def techniques(run: Run) -> Iterator[Technique]:
    """Eight chunks, of a model whose losses are of a vocabulary."""
    vocabulary = _vocabulary(run)
    if run.options.chunked_loss is None and vocabulary is not None:

        def has_logits(storage: Storage) -> bool:
            return storage.shape[-1:] == (vocabulary,)

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
            scope=has_logits,
        )


def _vocabulary(run: Run) -> int | None:
    """The classes of the model's own cross-entropy; None where it has none."""
    schedule = run.schedule
    losses = (op for op in schedule.operations if op.target.startswith("aten.nll_loss_forward"))
    shapes = (schedule.storages[i].shape for op in losses for i in op.reads)
    return next((shape[-1] for shape in shapes if len(shape) > 1), None)
