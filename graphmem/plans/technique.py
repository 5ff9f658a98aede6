"""One change of how a training is run, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, unique
from typing import Any

from graphmem.options import Options
from graphmem.schedule import Category, Schedule, Storage


@unique
class Loses(IntEnum):
    """What a change costs, the cheapest first."""

    NOTHING = 0
    RECOMPUTATION = 1
    TRANSFER = 2  # between the host and the GPU, or between GPUs that there are
    PRECISION = 3
    OPTIMIZER = 4
    TRAINED = 5
    GPUS = 6

    @property
    def words(self) -> str:
        """As it is called in a sentence."""
        return _WORDS.get(self.name, self.name.lower())


_WORDS = {
    "OPTIMIZER": "another optimizer",
    "TRAINED": "fewer weights trained",
    "GPUS": "more GPUs",
}


EVERYTHING = tuple(Category)


@dataclass(frozen=True)
class Technique:
    """One change.

    ``change`` are options of ``analyze`` and their values; ``micro_batches`` cuts the batch into
    so many. ``least`` is for each category the smallest share of its bytes that may be left, of
    the storages of ``scope`` (None: of all); ``least_in_step`` the same while the optimizer
    steps: a bound, by which combinations that can't fit are left out. ``likely`` is where more
    than that is likely to be left: what likely fits is tried first. Of a ``family`` the
    stronger ones do the same and cost more; no two of one go together, nor two with the same
    ``apart``. ``flag`` and ``code`` are what is to be written.
    ``cost`` is a sentence. ``needs`` is a package without which it can't be simulated.
    """

    name: str
    loses: Loses
    cost: str
    flag: str
    code: str
    change: Mapping[str, Any]
    least: Mapping[Category, float] = field(default_factory=dict)
    least_in_step: Mapping[Category, float] = field(default_factory=dict)
    likely: Mapping[Category, float] = field(default_factory=dict)
    scope: Callable[[Storage], bool] | None = None
    micro_batches: int = 1
    family: str = ""
    strength: int = 0
    apart: str = ""
    needs: str | None = None

    def is_within(self, other: Technique) -> bool:
        """Whether another technique is this one, or a stronger one of its family."""
        if self.family and self.family == other.family:
            return self.strength <= other.strength
        return self.name == other.name


@dataclass(frozen=True)
class Run:
    """A run that is to fit, as it was first asked for.

    ``blocks`` are the modules that the model repeats, by path. ``batch`` is None where it is
    not known, ``gpus`` where nobody said how many there are. ``products`` are the operators in
    the blocks' forward that compute the most (matrix products, convolutions, attention).
    """

    options: Options
    schedule: Schedule
    blocks: tuple[str, ...]
    batch: int | None
    gpus: int | None
    fp32: bool
    products: tuple[str, ...] = ()
