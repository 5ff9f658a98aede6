"""The optimizer's step: one kernel without temporaries, or one parameter at a time in backward."""

from __future__ import annotations

from collections.abc import Iterator

from graphmem.plans.technique import Loses, Run, Technique
from graphmem.schedule import Category, Phase

_FUSED = frozenset({"adam", "adamw", "amsgrad", "sgd", "sgd+momentum", "adagrad"})
"""Source: torch/optim (2.13), the classes whose constructor takes fused=."""


def techniques(run: Run) -> Iterator[Technique]:
    """A fused step, and a step in backward, where nothing of the run forbids them."""
    options = run.options
    if options.optimizer.lower() in _FUSED and not options.fused:
        yield Technique(
            name="fused optimizer",
            loses=Loses.NOTHING,
            cost="nothing",
            flag="--fused",
            code="the optimizer with fused=True",
            change={"fused": True, "foreach": None},
            least={Category.TEMPORARIES: 0.0},
            phases=(Phase.OPTIMIZER,),
        )
    if not options.optimizer_in_backward:
        yield Technique(
            name="optimizer step in backward",
            loses=Loses.NOTHING,
            cost="no gradient norm, no accumulation: each gradient is gone at once",
            flag="--optimizer-in-backward",
            code="parameter.register_post_accumulate_grad_hook(step_and_clear)",
            change={"optimizer_in_backward": True},
            least={Category.GRADIENTS: 0.0, Category.TEMPORARIES: 0.0},
        )
