"""Scratch: bytes that a kernel allocates for itself while it runs.

A rule is a function of one call, registered for an operator (by its name in the
dispatcher, without overload) and a target. Registering twice is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from graphmem.devices import DEFAULT, Gpu
from graphmem.errors import InvariantError
from graphmem.options import Target
from graphmem.schedule import Scratch


@dataclass(frozen=True, slots=True)
class Call:
    """One operator call: nested arguments and results, with ``Layout`` for tensors."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    gpu: Gpu = DEFAULT


Bytes = int | tuple[int, ...] | Scratch
"""What a rule gives: bytes of one block, of several blocks that are alive together, or
stages one after another of such blocks."""

Rule = Callable[[Call], Bytes]

_RULES: dict[tuple[Target, str], Rule] = {}


def scratch(*operators: str, target: Target) -> Callable[[Rule], Rule]:
    """Register a rule for operators such as ``aten::addmm``.

    Raises:
        InvariantError: if one of them has a rule on the target already.
    """

    def register(rule: Rule) -> Rule:
        for operator in operators:
            if (target, operator) in _RULES:
                raise InvariantError(f"two scratch rules for {operator} on {target}")
            _RULES[target, operator] = rule
        return rule

    return register


def scratch_rule(target: Target, operator: str) -> Rule | None:
    """The rule of an operator on a target, if there is one."""
    return _RULES.get((target, operator))


def stages(given: Bytes) -> Scratch:
    """What a rule gave as stages of blocks, without those of no bytes."""
    if isinstance(given, int):
        given = (given,)
    nested = (given,) if all(isinstance(n, int) for n in given) else given
    kept = (tuple(n for n in stage if n) for stage in cast(Scratch, nested))
    return tuple(stage for stage in kept if stage)


def rules() -> dict[tuple[Target, str], Rule]:
    """Every rule, for the documentation."""
    return dict(_RULES)
