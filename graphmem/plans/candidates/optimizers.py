"""Optimizers with smaller states: Adam's in fewer bits, and other algorithms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphmem.plans.technique import Loses, Run, Technique
from graphmem.schedule import Category

_ADAM = frozenset({"adam", "adamw", "amsgrad"})


@dataclass(frozen=True, slots=True)
class _Smaller:
    """An optimizer in Adam's place; of the states it leaves ``least``, more likely ``likely``."""

    name: str
    option: str
    code: str
    cost: str
    loses: Loses
    least: float
    likely: float


_SMALLER = (
    _Smaller(
        name="8-bit AdamW",
        option="adamw8bit",
        code="bitsandbytes.optim.AdamW8bit(model.parameters())",
        cost="states in 8 bits",
        loses=Loses.PRECISION,
        least=1 / 4,
        likely=1 / 4,
    ),
    _Smaller(
        name="4-bit AdamW",
        option="ao_adamw4bit",
        code="torchao.optim.AdamW4bit(model.parameters())",
        cost="states in 4 bits",
        loses=Loses.PRECISION,
        least=1 / 8,
        likely=1 / 8,
    ),
    _Smaller(
        name="paged 8-bit AdamW",
        option="paged_adamw8bit",
        code="bitsandbytes.optim.PagedAdamW8bit(model.parameters())",
        cost="states in 8 bits, which move to the host where memory ends",
        loses=Loses.PRECISION,
        least=0.0,
        likely=0.0,
    ),
    _Smaller(
        name="Adam-mini",
        option="adam_mini",
        code="Adam_mini(model.named_parameters())",
        cost="one second moment for each block of a weight",
        loses=Loses.OPTIMIZER,
        least=0.0,
        likely=0.5,
    ),
    _Smaller(
        name="Lion",
        option="lion",
        code="Lion(model.parameters())",
        cost="one state, the sign of which is stepped by",
        loses=Loses.OPTIMIZER,
        least=0.0,
        likely=0.5,
    ),
    _Smaller(
        name="Adafactor",
        option="adafactor",
        code="torch.optim.Adafactor(model.parameters())",
        cost="second moments by rows and columns, no first one",
        loses=Loses.OPTIMIZER,
        least=0.0,
        likely=0.0,
    ),
)


def techniques(run: Run) -> Iterator[Technique]:
    """All of them, in the place of Adam."""
    if run.options.optimizer.lower() in _ADAM:
        for one in _SMALLER:
            yield Technique(
                name=one.name,
                loses=one.loses,
                cost=one.cost,
                flag=f"--optimizer {one.option}",
                code=one.code,
                change={"optimizer": one.option, "foreach": None, "fused": None},
                least={Category.OPTIMIZER_STATES: one.least},
                likely={Category.OPTIMIZER_STATES: one.likely},
                least_in_step={Category.TEMPORARIES: 0.0},
            )
