"""Channels last: what cuDNN computes in without copies, on GPUs with tensor cores."""

from __future__ import annotations

from collections.abc import Iterator

from graphmem.plans.technique import Loses, Run, Technique
from graphmem.schedule import Category


def techniques(run: Run) -> Iterator[Technique]:
    """One, of a model with convolutions."""
    has_images = any("convolution" in op.target for op in run.schedule.operations)
    if has_images and not run.options.channels_last:
        yield Technique(
            name="channels last",
            loses=Loses.NOTHING,
            cost="nothing; other kernels of cuDNN",
            flag="--channels-last",
            code="model.to(memory_format=torch.channels_last), and so each batch of images",
            change={"channels_last": True},
            least={Category.TEMPORARIES: 0.0, Category.SAVED_FOR_BACKWARD: 0.0},
            likely={Category.TEMPORARIES: 1.0, Category.SAVED_FOR_BACKWARD: 1.0},
        )
