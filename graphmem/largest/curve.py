"""The peak against the size: who holds it, and where another term becomes the largest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

POINTS = 12
"""Of a curve: what a small plot has room for."""


@dataclass(frozen=True, slots=True)
class Point:
    """The peak at one size; ``breakdown`` adds up to its allocated bytes."""

    size: int
    allocated_bytes: int
    reserved_bytes: int | None
    breakdown: Mapping[str, int]

    @property
    def term(self) -> str:
        """The category that holds the most; of equal ones the first."""
        return max(self.breakdown, key=lambda name: self.breakdown[name])


@dataclass(frozen=True, slots=True)
class Turn:
    """From ``size`` on ``to`` holds the most at the peak, below it ``before``."""

    size: int
    before: str
    to: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Some points of the curve, and all turns between them that those tell of."""

    points: tuple[Point, ...]
    turns: tuple[Turn, ...]


def curve(at: Callable[[int], Point], lowest: int, highest: int, step: int = 1) -> Curve:
    """The curve between two sizes, multiples of a step.

    A turn is found to the size, by halving between two points whose largest terms differ; one
    that is taken back between two points is not seen.
    """
    known: dict[int, Point] = {}

    def point(size: int) -> Point:
        if size not in known:
            known[size] = at(size)
        return known[size]

    shown = [point(size) for size in _spread(lowest, highest, step)]
    turns = [turn for two in pairwise(shown) for turn in _turns(point, *two, step)]
    return Curve(tuple(shown), tuple(turns))


def _spread(lowest: int, highest: int, step: int) -> Sequence[int]:
    """``POINTS`` sizes from one to another, as even as steps allow."""
    count = (highest - lowest) // step
    places = {round(count * i / (POINTS - 1)) for i in range(POINTS)}
    return [lowest + place * step for place in sorted(places)]


def _turns(point: Callable[[int], Point], left: Point, right: Point, step: int) -> list[Turn]:
    """The sizes between two at which the largest term changes, in order."""
    if left.term == right.term:
        return []
    if right.size - left.size <= step:
        return [Turn(right.size, left.term, right.term)]
    middle = point(left.size + (right.size - left.size) // (2 * step) * step)
    return [*_turns(point, left, middle, step), *_turns(point, middle, right, step)]
