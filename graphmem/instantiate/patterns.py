"""Patterns: nested values that were seen at several sizes, as functions of the size.

What is equal at all sizes is constant; whole numbers are polynomials of the size; anything
else that differs has no pattern. Other floats than whole ones are left open: no rule reads
the value of a scale or a learning rate, and one that did would find nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, NoReturn

from graphmem.instantiate.polynomials import DiffersError, Numbers
from graphmem.targets import Layout

Pattern = Callable[[list[int]], Any]
"""A value, of the numbers that ``Numbers.at`` gives for a size."""


class Unread(float):
    """A float that is another at every size: a nan that nothing can be decided by."""

    __slots__ = ()

    def __new__(cls) -> Unread:
        """A nan."""
        return super().__new__(cls, "nan")

    def _decides(self, *_: object) -> NoReturn:
        raise DiffersError("a rule reads a number that is no polynomial of the size")

    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __int__ = __eq__ = __ne__ = _decides
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _decides
    __truediv__ = __rtruediv__ = __floordiv__ = __mod__ = __neg__ = __abs__ = _decides
    __hash__ = float.__hash__


def pattern(numbers: Numbers, seen: Sequence[Any]) -> Pattern:
    """The pattern of a value that was ``seen[i]`` at the ``i``th size.

    Raises:
        DiffersError: if it has none.
    """
    first = seen[0]
    if all(other == first for other in seen[1:]):
        return lambda _: first
    if any(type(other) is not type(first) for other in seen[1:]):
        raise DiffersError(f"{seen} are of several types")
    if type(first) is int:
        return _number(numbers.place(tuple(seen)))
    if type(first) is float:
        return _float(numbers, seen)
    if isinstance(first, tuple | list):
        return _sequence(numbers, seen)
    if isinstance(first, dict) and all(other.keys() == first.keys() for other in seen):
        parts = {key: pattern(numbers, [other[key] for other in seen]) for key in first}
        return lambda values: {key: part(values) for key, part in parts.items()}
    if is_dataclass(first):
        return _record(numbers, seen)
    raise DiffersError(f"{seen} differ in more than numbers")


def is_constant(seen: Sequence[Any]) -> bool:
    """Whether a value is the same at all sizes."""
    return all(other == seen[0] for other in seen[1:])


def hashable(value: Any) -> Any:
    """A nested value as one that can be a dictionary's key; equal ones give equal keys."""
    if isinstance(value, Layout):
        return value
    if isinstance(value, list | tuple):
        return tuple(map(hashable, value))
    if isinstance(value, dict):
        return tuple((key, hashable(item)) for key, item in value.items())
    return value


def _number(place: int) -> Pattern:
    return lambda values: values[place]


def _float(numbers: Numbers, seen: Sequence[float]) -> Pattern:
    if not all(value.is_integer() for value in seen):
        return lambda _: Unread()
    try:
        place = numbers.place(tuple(map(int, seen)))
    except DiffersError:
        return lambda _: Unread()
    return lambda values: float(values[place])


def _sequence(numbers: Numbers, seen: Sequence[Any]) -> Pattern:
    """A list, a tuple, or a tuple of a class of its own, such as ``torch.Size``, ``Layout``."""
    first = seen[0]
    if any(len(other) != len(first) for other in seen):
        raise DiffersError(f"{seen} differ in length")
    parts = [pattern(numbers, column) for column in zip(*seen, strict=True)]
    made = type(first)
    if hasattr(first, "_fields"):
        return lambda values: made(*[part(values) for part in parts])
    return lambda values: made([part(values) for part in parts])


def _record(numbers: Numbers, seen: Sequence[Any]) -> Pattern:
    """A frozen dataclass, such as ``schedule.Module``."""
    first = seen[0]
    parts = {
        field.name: pattern(numbers, [getattr(other, field.name) for other in seen])
        for field in fields(first)
        if not is_constant([getattr(other, field.name) for other in seen])
    }
    return lambda values: replace(first, **{name: part(values) for name, part in parts.items()})
