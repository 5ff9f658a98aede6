"""One change of how a training is run, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, unique
from typing import Any

from graphmem.options import Options
from graphmem.schedule import Category, Phase, Schedule


@unique
class Loses(IntEnum):
    """What a change costs, the cheapest first."""

    NOTHING = 0
    RECOMPUTATION = 1
    TRANSFER = 2  # between the host and the GPU, or between GPUs that there are
    PRECISION = 3
    GPUS = 4

    @property
    def words(self) -> str:
        """As it is called in a sentence."""
        return {"GPUS": "more GPUs"}.get(self.name, self.name.lower())


EVERYTHING = tuple(Category)


@dataclass(frozen=True)
class Technique:
    """One change.

    ``change`` are options of ``analyze`` and their values; ``micro_batches`` cuts the batch into
    so many. ``least`` is for each category the smallest share of its bytes that may be left, in
    the phases of ``phases`` (None: in all): a bound, by which combinations that can't fit are
    left out. Of a ``family`` the stronger ones do the same and cost more. ``flag`` and ``code``
    are what is to be written. ``cost`` is a sentence.
    """

    name: str
    loses: Loses
    cost: str
    flag: str
    code: str
    change: Mapping[str, Any]
    least: Mapping[Category, float] = field(default_factory=dict)
    phases: tuple[Phase, ...] | None = None
    micro_batches: int = 1
    family: str = ""
    strength: int = 0

    def is_within(self, other: Technique) -> bool:
        """Whether another technique is this one, or a stronger one of its family."""
        if self.family and self.family == other.family:
            return self.strength <= other.strength
        return self.name == other.name


@dataclass(frozen=True)
class Run:
    """A run that is to fit, as it was first asked for.

    ``blocks`` are the modules that the model repeats, by path. ``batch`` is None where it is
    not known, ``gpus`` where nobody said how many there are.
    """

    options: Options
    schedule: Schedule
    blocks: tuple[str, ...]
    batch: int | None
    gpus: int | None
    fp32: bool
