"""Optimizers with smaller states."""

from __future__ import annotations

from collections.abc import Iterator

from graphmem.plans.technique import Loses, Run, Technique
from graphmem.schedule import Category

_ADAM = frozenset({"adam", "adamw", "amsgrad"})


def techniques(run: Run) -> Iterator[Technique]:
    """Bitsandbytes' Adam of 8 bits, also with its states in paged memory; of Adam."""
    if run.options.optimizer.lower() not in _ADAM:
        return
    yield Technique(
        name="8-bit AdamW",
        loses=Loses.PRECISION,
        cost="states in 8 bits",
        flag="--optimizer adamw8bit",
        code="bitsandbytes.optim.AdamW8bit(model.parameters())",
        change={"optimizer": "adamw8bit", "foreach": None, "fused": None},
        least={Category.OPTIMIZER_STATES: 0.25, Category.TEMPORARIES: 0.0},
    )
    yield Technique(
        name="paged 8-bit AdamW",
        loses=Loses.PRECISION,
        cost="states in 8 bits, which move to the host where memory ends",
        flag="--optimizer paged_adamw8bit",
        code="bitsandbytes.optim.PagedAdamW8bit(model.parameters())",
        change={"optimizer": "paged_adamw8bit", "foreach": None, "fused": None},
        least={Category.OPTIMIZER_STATES: 0.0, Category.TEMPORARIES: 0.0},
    )
