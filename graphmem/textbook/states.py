"""How many states of an optimizer the textbook counts.

As such tables have it: a count of tensors as large as the parameters. What the optimizers
really keep is simulated, never looked up here; docs/optimizers.md has both.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from graphmem.errors import UsageError
from graphmem.options import nearest


@dataclass(frozen=True, slots=True)
class States:
    """``count`` states a parameter, of ``nbytes`` bytes each; None: of the parameters' own."""

    count: int
    nbytes: Fraction | None = None


_BYTE = Fraction(1)
_HALF = Fraction(1, 2)

STATES: dict[str, States] = {
    "sgd": States(0),
    "sgd+momentum": States(1),
    "adam": States(2),
    "adamw": States(2),
    "nadam": States(2),
    "radam": States(2),
    "adamax": States(2),
    "amsgrad": States(3),
    "adagrad": States(1),
    "rmsprop": States(1),
    "adadelta": States(2),
    "rprop": States(2),
    "asgd": States(1),
    "muon": States(1),
    "muon+adamw": States(1),
    "lion": States(1),
    "adam_mini": States(1),
    "adafactor": States(0),
    "adam8bit": States(2, _BYTE),
    "adamw8bit": States(2, _BYTE),
    "paged_adam8bit": States(0),
    "paged_adamw8bit": States(0),
    "paged_adamw": States(0),
    "paged_lion8bit": States(0),
    "ademamix": States(3),
    "ademamix8bit": States(3, _BYTE),
    "lion8bit": States(1, _BYTE),
    "ao_adamw8bit": States(2, _BYTE),
    "ao_adamw4bit": States(2, _HALF),
}
"""Adafactor's rows and columns count as nothing, and so do states that are paged out."""


def states_of(name: str) -> States:
    """What the textbook counts for an optimizer; arguments in brackets may follow its name.

    Raises:
        UsageError: with the nearest name.
    """
    base, _, arguments = name.lower().partition("(")
    if base == "sgd" and "momentum=" in arguments:
        base = "sgd+momentum"
    if "amsgrad=true" in arguments:
        base = "amsgrad"
    if base not in STATES:
        known = nearest(base, STATES)
        raise UsageError(f"optimizer: no textbook counts the states of {name!r}{known}")
    return STATES[base]
