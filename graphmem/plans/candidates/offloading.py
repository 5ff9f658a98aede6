"""Offloading to the host's memory: of what backward needs, or of the optimizer's states."""

from __future__ import annotations

from collections.abc import Iterator

from graphmem.plans.technique import Loses, Run, Technique
from graphmem.schedule import Category


def techniques(run: Run) -> Iterator[Technique]:
    """Either, where nothing is offloaded yet."""
    if run.options.offload is not None:
        return
    yield Technique(
        name="activations on the host",
        loses=Loses.TRANSFER,
        cost="what backward needs goes to the host and back",
        flag="--offload activations --pin-memory",
        code="with torch.autograd.graph.save_on_cpu(pin_memory=True): loss = model(batch)",
        change={"offload": "activations", "pin_memory": True},
        least={Category.SAVED_FOR_BACKWARD: 0.0},
    )
    yield Technique(
        name="optimizer on the host",
        loses=Loses.TRANSFER,
        cost="gradients go to the host and parameters back; the step runs on the CPU",
        flag="--offload optimizer",
        code="DeepSpeed: zero_optimization.offload_optimizer.device = cpu",
        change={"offload": "optimizer", "pin_memory": False},
        least={Category.OPTIMIZER_STATES: 0.0},
        least_in_step={Category.GRADIENTS: 0.0, Category.TEMPORARIES: 0.0},
    )
