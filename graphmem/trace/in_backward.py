"""The optimizer's step in backward: each parameter has its own, run when its gradient is there.

What is simulated is PyTorch's tutorial "How to save memory by fusing an optimizer step into
the backward pass": for every parameter an optimizer of its own, with ``foreach=False`` unless
chosen otherwise, and a hook (``register_post_accumulate_grad_hook``) that steps and then calls
its ``zero_grad``. So at most a few gradients are there at a time.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from graphmem.errors import UsageError
from graphmem.options import Options
from graphmem.trace.optimizers import OptimizerChoice, find_optimizer, make_optimizer


def step_in_backward(
    parameters: Iterable[nn.Parameter], choice: OptimizerChoice, options: Options
) -> dict[nn.Parameter, torch.optim.Optimizer]:
    """Give every trainable parameter its optimizer and its hook; returns the optimizers.

    Raises:
        UsageError: if nothing is trained, or the optimizer can't be made.
    """
    trainable = [p for p in parameters if p.requires_grad]
    if not trainable:
        raise UsageError("the model has no parameter to train; use mode='inference'")
    if options.foreach is None and not options.fused and _takes_foreach(choice):
        options = replace(options, foreach=False)
    optimizers = {p: make_optimizer(choice, [p], options) for p in trainable}
    some = optimizers[trainable[0]]
    if needs_closure(some):
        raise UsageError(f"optimizer in backward: {type(some).__name__} evaluates the model itself")

    def update(parameter: nn.Parameter) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad(set_to_none=options.set_to_none)

    for parameter in trainable:
        parameter.register_post_accumulate_grad_hook(update)
    return optimizers


def needs_closure(optimizer: Any) -> bool:
    """Whether an optimizer evaluates the model itself, as LBFGS does."""
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty


def _takes_foreach(choice: OptimizerChoice) -> bool:
    """Whether an optimizer has the argument; what a factory of the user's makes is its own."""
    made = find_optimizer(choice)[0] if isinstance(choice, str) else choice
    return isinstance(made, type) and "foreach" in inspect.signature(made).parameters
