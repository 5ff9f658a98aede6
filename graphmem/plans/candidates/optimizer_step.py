"""The optimizer's step: fused, one parameter after another, or in backward."""

from __future__ import annotations

from collections.abc import Iterator

from graphmem.plans.technique import Loses, Run, Technique
from graphmem.schedule import Category

_FUSED = frozenset({"adam", "adamw", "amsgrad", "sgd", "sgd+momentum", "adagrad"})
"""Source: torch/optim (2.13), the classes whose constructor takes fused=."""


def techniques(run: Run) -> Iterator[Technique]:
    """A step without the copies of foreach, and one in backward, where nothing forbids them."""
    options = run.options
    if options.optimizer.lower() in _FUSED:
        if not options.fused:
            yield _fused()
    elif options.foreach is None or options.foreach:
        yield _one_by_one()
    if not options.optimizer_in_backward:
        yield Technique(
            name="optimizer step in backward",
            loses=Loses.NOTHING,
            cost="no gradient norm, no accumulation: each gradient is gone at once",
            flag="--optimizer-in-backward",
            code="parameter.register_post_accumulate_grad_hook(step_and_clear)",
            change={"optimizer_in_backward": True},
            least={Category.GRADIENTS: 0.0},
            least_in_step={Category.TEMPORARIES: 0.0},
        )


def _fused() -> Technique:
    return Technique(
        name="fused optimizer",
        loses=Loses.NOTHING,
        cost="nothing",
        flag="--fused",
        code="the optimizer with fused=True",
        change={"fused": True, "foreach": None},
        least_in_step={Category.TEMPORARIES: 0.0},
    )


def _one_by_one() -> Technique:
    return Technique(
        name="one parameter at a time",
        loses=Loses.NOTHING,
        cost="more kernels in the optimizer's step",
        flag="--no-foreach",
        code="the optimizer with foreach=False",
        change={"foreach": False},
        least_in_step={Category.TEMPORARIES: 0.0},
    )
