"""ZeRO 1: torch's own ZeroRedundancyOptimizer, which gives each rank the states of whole tensors.

Of all ranks, the one with the most elements is simulated. (DeepSpeed's stage 1 cuts one flat
tensor into equal shares.)
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable
from typing import Any

from torch import nn

from graphmem.errors import UsageError
from graphmem.options import Options
from graphmem.trace.optimizers import OptimizerChoice, find_optimizer, implementation


def shared(choice: OptimizerChoice, options: Options) -> OptimizerChoice:
    """What makes a ZeroRedundancyOptimizer of an optimizer's class.

    Raises:
        UsageError: for a function, whose class is not known.
    """
    if not isinstance(choice, str | type):
        raise UsageError("zero 1: give the optimizer by name or class, which each rank makes")
    cls, arguments = find_optimizer(choice) if isinstance(choice, str) else (choice, {})
    refuse_closure(cls, "zero 1")
    arguments = {**arguments, **implementation(cls, options)}

    def made(parameters: Iterable[nn.Parameter]) -> Any:
        return _zero()(parameters, optimizer_class=cls, **arguments)

    made.__name__ = cls.__name__
    return made


def refuse_closure(cls: Any, option: str) -> None:
    """Refuse an optimizer that evaluates the model itself.

    Raises:
        UsageError: naming it.
    """
    closure = inspect.signature(cls.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise UsageError(f"{option}: {cls.__name__} evaluates the model itself; use another one")


def _zero() -> Any:
    """The class, which comes with modules that are deprecated when they are imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch.distributed.optim import ZeroRedundancyOptimizer
    return ZeroRedundancyOptimizer


def fullest(model: nn.Module, ranks: int) -> int:
    """The rank whose parameters have the most elements.

    Source: torch/distributed/optim/zero_redundancy_optimizer.py, ``_partition_parameters``
    (torch 2.13): the largest tensor first, each to the first rank that has the fewest so far.
    """
    sizes = [0] * ranks
    trained = (p.numel() for p in model.parameters() if p.requires_grad)
    for numel in sorted(trained, reverse=True):
        sizes[sizes.index(min(sizes))] += numel
    return sizes.index(max(sizes))
