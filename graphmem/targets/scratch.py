"""Scratch: bytes that a kernel allocates for itself while it runs.

A rule is a function of one call, registered for an operator (by its name in the
dispatcher, without overload) and a target. Registering twice is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

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


class InTurn(NamedTuple):
    """Of an operator that makes its results one after another: the scratch for each.

    The second result does not exist yet while the first is made. What is alive through all
    of it is named in every stage.
    """

    scratch: tuple[Scratch, ...]


Bytes = int | tuple[int, ...] | Scratch | InTurn
"""What a rule gives: bytes of one block, of several blocks that are alive together, or
stages one after another of such blocks; all results are there first, or they come in turn."""

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
    if isinstance(given, InTurn):
        return tuple(stage for one in given.scratch for stage in stages(one))
    if isinstance(given, int):
        given = (given,)
    nested = (given,) if all(isinstance(n, int) for n in given) else given
    kept = (tuple(n for n in stage if n) for stage in cast(Scratch, nested))
    return tuple(stage for stage in kept if stage)


def beside(held: tuple[int, ...], others: Scratch) -> Scratch:
    """Blocks that are alive through all of some stages, or alone if there are none."""
    return tuple((*held, *stage) for stage in others or ((),))


def turns(given: Bytes, result: Any) -> list[tuple[Any, Scratch]]:
    """The results in the order in which they are made, and the scratch of each.

    All at once where a rule does not say that they come in turn. A result that is not
    defined and takes no scratch is left out, unless nothing would be left.
    """
    if not isinstance(given, InTurn):
        return [(result, stages(given))]
    made = [(one, stages(own)) for one, own in zip(result, given.scratch, strict=True)]
    return [turn for turn in made if turn[0] is not None or turn[1]] or [(result, ())]


def rules() -> dict[tuple[Target, str], Rule]:
    """Every rule, for the documentation."""
    return dict(_RULES)
