"""Numbers as polynomials of a size: fitted exactly, to integers, or not at all.

A number that was seen at several sizes is taken to be the polynomial of the lowest degree
through the ends, and one point more for the second degree; every other point must lie on it.
Above the second degree nothing in a network's memory grows: batch and sequence length enter
a tensor's size once or twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MOST_DEGREE = 2


class DiffersError(Exception):
    """A schedule at one size is not that of another with other numbers."""


class TooFewError(DiffersError):
    """There may be a polynomial, which takes a point more to tell."""


@dataclass(frozen=True, slots=True)
class Polynomial:
    """``(a + b * size + c * size**2) / divisor``, in lowest terms."""

    a: int
    b: int
    c: int
    divisor: int

    @property
    def degree(self) -> int:
        """0, 1 or 2."""
        return 2 if self.c else 1 if self.b else 0

    def at(self, size: int) -> int:
        """The number at a size.

        Raises:
            DiffersError: if it is no whole number there.
        """
        value, rest = divmod(self.a + size * (self.b + size * self.c), self.divisor)
        if rest:
            raise DiffersError(f"{self} is no whole number at {size}")
        return value


def through(sizes: Sequence[int], values: Sequence[int]) -> Polynomial:
    """The polynomial of the lowest degree through all points, of one point more than it needs.

    Raises:
        TooFewError: if there is none below the second degree, and three points are too few to
            tell one of that.
        DiffersError: if there is none of the second degree or lower.
    """
    for degree in range(MOST_DEGREE + 1):
        if len(sizes) < degree + 2:
            break
        made = _newton(sizes, values, degree)
        if all(_is_on(made, *point) for point in zip(sizes, values, strict=True)):
            return made
    kind = TooFewError if len(sizes) < MOST_DEGREE + 2 else DiffersError
    raise kind(f"{list(values)} at {list(sizes)} are on no polynomial of degree 2 or less")


def _newton(sizes: Sequence[int], values: Sequence[int], degree: int) -> Polynomial:
    """Through the first, the last and (for a parabola) the second point."""
    if degree == 0:
        return Polynomial(values[0], 0, 0, 1)
    (x0, x1), (y0, y1) = (sizes[0], sizes[-1]), (values[0], values[-1])
    if degree == 1:
        return _reduced(y0 * (x1 - x0) - x0 * (y1 - y0), y1 - y0, 0, x1 - x0)
    x2, y2 = sizes[1], values[1]
    d0, d1, d2 = (x0 - x1) * (x0 - x2), (x1 - x0) * (x1 - x2), (x2 - x0) * (x2 - x1)
    divisor = d0 * d1 * d2
    w0, w1, w2 = y0 * d1 * d2, y1 * d0 * d2, y2 * d0 * d1
    return _reduced(
        w0 * x1 * x2 + w1 * x0 * x2 + w2 * x0 * x1,
        -(w0 * (x1 + x2) + w1 * (x0 + x2) + w2 * (x0 + x1)),
        w0 + w1 + w2,
        divisor,
    )


def _reduced(a: int, b: int, c: int, divisor: int) -> Polynomial:
    common = math.gcd(a, b, c, divisor) * (1 if divisor > 0 else -1)
    return Polynomial(a // common, b // common, c // common, divisor // common)


def _is_on(polynomial: Polynomial, size: int, value: int) -> bool:
    p = polynomial
    return p.a + size * (p.b + size * p.c) == value * p.divisor


Derived = Callable[[list[int]], int]
"""A number that a rule gives, of the numbers before it."""


class Numbers:
    """The distinct numbers of one family, each known by its place in ``at``'s list.

    They are polynomials, but for those that a rule of the target gives: these may be rounded.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        self._numbers: list[Polynomial | Derived] = []
        self._places: dict[tuple[int, ...], int] = {}

    def place(self, values: tuple[int, ...]) -> int:
        """Where a number stands that has ``values`` at the family's sizes.

        Raises:
            DiffersError: if it is no polynomial, and no rule gives it.
        """
        place = self._places.get(values)
        if place is None:
            place = self._add(values, through(self.sizes, values))
        return place

    def given(self, values: tuple[int, ...], number: Derived) -> None:
        """Note that a rule gives a number, where it is no polynomial."""
        try:
            self.place(values)
        except DiffersError:
            self._add(values, number)

    def _add(self, values: tuple[int, ...], number: Polynomial | Derived) -> int:
        self._numbers.append(number)
        self._places[values] = len(self._numbers) - 1
        return self._places[values]

    def at(self, size: int) -> list[int]:
        """All numbers at a size.

        Raises:
            DiffersError: if one of them is no whole number.
        """
        values: list[int] = []
        for number in self._numbers:
            if isinstance(number, Polynomial):
                values.append(number.at(size))
            else:
                values.append(number(values))
        return values
