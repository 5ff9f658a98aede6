"""How results lie, by the target's own rules, at another size.

Layouts decided what was recorded, so a rule must give those that the schedule's numbers give.
A number of a layout that is no polynomial of the size, such as one that is rounded up to an
alignment, is what the rule gives, wherever else it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch._ops import OpOverload

from graphmem.instantiate.patterns import Pattern, hashable, is_constant, pattern
from graphmem.instantiate.polynomials import DiffersError, Numbers
from graphmem.targets import ResultRule
from graphmem.targets.scratch import Call
from graphmem.trace.shapes import of_key


@dataclass(frozen=True, slots=True)
class Laid:
    """How one operator's results lie: the rule, and what it is asked."""

    func: OpOverload
    rule: ResultRule
    args: Pattern
    kwargs: Pattern

    def at(self, values: list[int]) -> Any:
        """The layouts, computed again.

        Raises:
            DiffersError: if the operator refuses its arguments.
        """
        try:
            args, kwargs = of_key(self.args(values)), self.kwargs(values) or ()
            named = {name: of_key(key) for name, key in kwargs}
            return hashable(self.rule(Call(tuple(args), named, None)))
        except DiffersError:
            raise
        except Exception as error:
            raise DiffersError(f"{self.func}: {error}") from error


@dataclass(frozen=True, slots=True)
class LaidOut:
    """One operator's results, and how they lay at the traced sizes."""

    laid: Laid
    result: Pattern

    def check(self, values: list[int]) -> None:
        """Compute the layouts again.

        Raises:
            DiffersError: if they are others.
        """
        if self.laid.at(values) != self.result(values):
            raise DiffersError(f"the results of {self.laid.func} lie otherwise")


def laid(
    numbers: Numbers,
    seen: Sequence[Sequence[tuple[Any, Any]]],
    rules: Mapping[OpOverload, ResultRule],
) -> list[LaidOut]:
    """The distinct calls whose results depend on the size, of operators that have a rule.

    Args:
        seen: at each size the keys of ``Shapes.of`` and what it gave.

    Raises:
        DiffersError: if the calls are not the same at all sizes.
    """
    if len({len(one) for one in seen}) != 1:
        raise DiffersError("another number of operators has results")
    found: dict[Any, LaidOut] = {}
    for moment in zip(*seen, strict=True):
        keys = [key for key, _ in moment]
        if any(key[0] is not keys[0][0] for key in keys):
            raise DiffersError("another operator runs")
        if keys[0][0] not in rules or is_constant(keys) or tuple(keys) in found:
            continue
        args, kwargs = (pattern(numbers, [key[part] for key in keys]) for part in (1, 2))
        one = Laid(keys[0][0], rules[keys[0][0]], args, kwargs)
        results = [hashable(layout) for _, layout in moment]
        for path, values in _numbers_in(results):
            numbers.given(values, _Number(one, path))
        found[tuple(keys)] = LaidOut(one, pattern(numbers, results))
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Number:
    """A number in the layouts of a rule: the position in each of the nested tuples."""

    laid: Laid
    path: tuple[int, ...]

    def __call__(self, values: list[int]) -> int:
        found = self.laid.at(values)
        for position in self.path:
            if not isinstance(found, tuple) or position >= len(found):
                raise DiffersError(f"the results of {self.laid.func} lie otherwise")
            found = found[position]
        if type(found) is not int:
            raise DiffersError(f"the results of {self.laid.func} lie otherwise")
        return found


def _numbers_in(
    seen: Sequence[Any], path: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The whole numbers in nested tuples that differ, and where they are."""
    first = seen[0]
    if type(first) is int and not is_constant(seen):
        yield path, tuple(seen)
    elif isinstance(first, tuple) and all(
        isinstance(other, tuple) and len(other) == len(first) for other in seen
    ):
        for position, column in enumerate(zip(*seen, strict=True)):
            yield from _numbers_in(column, (*path, position))
