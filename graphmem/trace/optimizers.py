"""Optimizers, by name, class or factory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from graphmem.errors import UsageError, one_line
from graphmem.options import Options, nearest

OptimizerChoice = str | type[torch.optim.Optimizer] | Callable[[Iterable[nn.Parameter]], Any]


def optimizer_classes() -> dict[str, type[torch.optim.Optimizer]]:
    """Every class of torch.optim, by its name in lower case."""
    return {
        name.lower(): value
        for name, value in vars(torch.optim).items()
        if isinstance(value, type)
        and issubclass(value, torch.optim.Optimizer)
        and value is not torch.optim.Optimizer
    }


def find_optimizer(name: str) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """The class that a name stands for, and its arguments.

    ``sgd+momentum`` is SGD with momentum 0.9; ``amsgrad`` is Adam with amsgrad.

    Raises:
        UsageError: with the nearest name.
    """
    classes = optimizer_classes()
    special: dict[str, tuple[str, dict[str, Any]]] = {
        "sgd+momentum": ("sgd", {"momentum": 0.9}),
        "amsgrad": ("adam", {"amsgrad": True}),
    }
    base, arguments = special.get(name.lower(), (name.lower(), {}))
    if base not in classes:
        names = sorted([*classes, *special])
        raise UsageError(f"optimizer: {name!r} is not in torch.optim{nearest(name.lower(), names)}")
    return classes[base], arguments


def make_optimizer(
    choice: OptimizerChoice, candidates: Iterable[nn.Parameter], options: Options
) -> torch.optim.Optimizer:
    """The optimizer of those parameters that are trainable.

    Raises:
        UsageError: if it can't be made, in one line.
    """
    parameters = [p for p in candidates if p.requires_grad]
    if not parameters:
        raise UsageError("the model has no parameter to train; use mode='inference'")
    if isinstance(choice, str):
        cls, arguments = find_optimizer(choice)
    elif isinstance(choice, type):
        cls, arguments = choice, {}
    else:
        return _made(choice, parameters, {})
    return _made(cls, parameters, {**arguments, **implementation(cls, options)})


def implementation(cls: type[torch.optim.Optimizer], options: Options) -> dict[str, Any]:
    """``foreach=`` and ``fused=`` where the user chose one."""
    accepted = inspect.signature(cls).parameters
    arguments: dict[str, Any] = {}
    for name, value in (("foreach", options.foreach), ("fused", options.fused)):
        if value is None:
            continue
        if name not in accepted:
            raise UsageError(f"{cls.__name__} takes no {name}=")
        arguments[name] = value
    if "lr" in accepted and accepted["lr"].default is inspect.Parameter.empty:
        arguments["lr"] = 1e-3
    return arguments


def takes(choice: OptimizerChoice, name: str) -> bool:
    """Whether an optimizer has an argument of some name; a factory's are its own."""
    cls = find_optimizer(choice)[0] if isinstance(choice, str) else choice
    return isinstance(cls, type) and name in inspect.signature(cls).parameters


def _made(
    factory: Any, parameters: list[nn.Parameter], arguments: dict[str, Any]
) -> torch.optim.Optimizer:
    name = getattr(factory, "__name__", type(factory).__name__)
    try:
        made: torch.optim.Optimizer = factory(parameters, **arguments)
    except Exception as error:
        raise UsageError(f"optimizer {name}: {type(error).__name__}: {one_line(error)}") from error
    return made
