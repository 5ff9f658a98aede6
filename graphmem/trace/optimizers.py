"""Optimizers, by name, class or factory."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from graphmem.errors import UsageError, one_line
from graphmem.options import Options, nearest
from graphmem.trace.optim import ALIASES, MODELS, Hints, Model, of_class, written

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


_SPECIAL: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd+momentum": ("sgd", {"momentum": 0.9}),
    "amsgrad": ("adam", {"amsgrad": True}),
}


def find_optimizer(text: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The class, or what makes one, that a name stands for, and its arguments.

    ``sgd+momentum`` is SGD with momentum 0.9, ``amsgrad`` Adam with amsgrad; ``optim.MODELS``
    has those of other packages. Arguments follow in brackets, as in ``sgd(momentum=0.9)``.

    Raises:
        UsageError: with the nearest name.
    """
    model, arguments = _found(text)
    return model.factory, arguments


def _found(text: str) -> tuple[Model, dict[str, Any]]:
    name, given = written(text)
    if name in ALIASES:
        name, default = written(ALIASES[name])
        given = {**default, **given}
    classes = optimizer_classes()
    base, arguments = _SPECIAL.get(name, (name, {}))
    if base in classes:
        return Model(classes[base]), {**arguments, **given}
    if base not in MODELS:
        names = sorted([*classes, *_SPECIAL, *MODELS, *ALIASES])
        raise UsageError(f"optimizer: {name!r} is not known{nearest(name, names)}")
    return MODELS[base], {**MODELS[base].arguments, **given}


def make_optimizer(
    choice: OptimizerChoice,
    candidates: Iterable[nn.Parameter],
    options: Options,
    hints: Hints | None = None,
) -> torch.optim.Optimizer:
    """The optimizer of those parameters that are trainable.

    Args:
        hints: what is known of them, for optimizers that treat embeddings or names apart.

    Raises:
        UsageError: if it can't be made, in one line.
    """
    parameters = [p for p in candidates if p.requires_grad]
    if not parameters:
        raise UsageError("the model has no parameter to train; use mode='inference'")
    if isinstance(choice, str):
        model, arguments = _found(choice)
        if model.hinted:
            arguments = {**arguments, "hints": hints}
        return _made(
            model.factory, parameters, _with_implementation(model.factory, arguments, options)
        )
    if isinstance(choice, type) and (name := of_class(choice)) is not None:
        return make_optimizer(name, parameters, options, hints)
    if isinstance(choice, type):
        return _made(choice, parameters, _with_implementation(choice, {}, options))
    return _made(choice, parameters, {})


def _with_implementation(
    factory: Callable[..., Any], arguments: dict[str, Any], options: Options
) -> dict[str, Any]:
    return {**implementation(factory, options), **arguments}


def implementation(cls: Callable[..., Any], options: Options) -> dict[str, Any]:
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


def _made(
    factory: Any, parameters: list[nn.Parameter], arguments: dict[str, Any]
) -> torch.optim.Optimizer:
    name = getattr(factory, "__name__", type(factory).__name__)
    try:
        made: torch.optim.Optimizer = factory(parameters, **arguments)
    except Exception as error:
        more = "; muon+adamw gives all others to AdamW" if factory is torch.optim.Muon else ""
        why = f"{type(error).__name__}: {one_line(error)}{more}"
        raise UsageError(f"optimizer {name}: {why}") from error
    return made
