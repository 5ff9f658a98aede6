"""Gradients that are let go between steps."""

from __future__ import annotations

from collections.abc import Iterator

from graphmem.plans.technique import Loses, Run, Technique
from graphmem.schedule import Category


def techniques(run: Run) -> Iterator[Technique]:
    """One, where they are filled with zeros."""
    if not run.options.set_to_none:
        yield Technique(
            name="gradients set to none",
            loses=Loses.NOTHING,
            cost="nothing",
            flag="--zero-grad none",
            code="optimizer.zero_grad(set_to_none=True)",
            change={"set_to_none": True},
            least={Category.GRADIENTS: 0.0, Category.TEMPORARIES: 0.0},
            likely={Category.GRADIENTS: 1.0, Category.TEMPORARIES: 1.0},
        )
