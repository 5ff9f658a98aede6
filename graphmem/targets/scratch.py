"""Scratch: bytes that a kernel allocates for itself while it runs.

A rule is a function of one call, registered for an operator (by its name in the
dispatcher, without overload) and a target. Registering twice is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphmem.errors import InvariantError
from graphmem.options import Target


@dataclass(frozen=True, slots=True)
class Call:
    """One operator call: nested arguments and results, with ``Layout`` for tensors."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any


Rule = Callable[[Call], int]

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


def rules() -> dict[tuple[Target, str], Rule]:
    """Every rule, for the documentation."""
    return dict(_RULES)
