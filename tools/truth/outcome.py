"""One prediction beside its measurement, and what a family of them is held to."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from tools.truth.rows import Row


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row that was predicted or skipped; sizes in bytes (or bytes per sample).

    ``group`` parts a family where its bars are apart (``"conv"``). ``resolution`` is half a
    unit of the last digit that was printed. ``peers`` are other tools' predictions.
    ``skipped`` says why there is no prediction. With ``is_lower_bound`` the run was out of
    memory, and any prediction above ``measured`` is right.
    """

    family: str
    name: str
    metric: str
    measured: float
    predicted: float | None = None
    group: str = ""
    resolution: float = 0.5
    is_lower_bound: bool = False
    peers: Mapping[str, float] = field(default_factory=dict)
    skipped: str = ""

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one; None where it was skipped."""
        if self.predicted is None:
            return None
        error = self.predicted / self.measured - 1
        return min(error, 0.0) if self.is_lower_bound else error

    @property
    def is_exact(self) -> bool:
        """Whether the prediction, printed with the measurement's digits, is the measurement."""
        if self.predicted is None:
            return False
        if self.is_lower_bound:
            return self.predicted >= self.measured
        return abs(self.predicted - self.measured) <= self.resolution

    def peer_errors(self) -> dict[str, float]:
        """The error of each peer, as ``error``."""
        return {name: value / self.measured - 1 for name, value in self.peers.items()}

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; ``from_dict`` reads them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Outcome:
        """What ``to_dict`` wrote."""
        return cls(**values)


def of(family: str, row: Row, **values: Any) -> Outcome:
    """The outcome of a row of the file, with what was predicted or why it was not."""
    return Outcome(
        family=family,
        name=values.pop("name", row.model),
        metric=values.pop("metric", row.metric),
        measured=row.measured,
        resolution=row.resolution,
        is_lower_bound=row.is_lower_bound,
        peers=row.peers,
        **values,
    )


class Family(Protocol):
    """What a module of this folder has."""

    BARS: Sequence[Bar]

    @staticmethod
    def takes(row: Row) -> bool:
        """Whether a row is of this family."""
        ...

    @staticmethod
    def outcomes(rows: Sequence[Row]) -> Iterator[Outcome]:
        """Predict every row that the family takes."""
        ...


def worst(errors: Sequence[float]) -> float:
    """The largest absolute error."""
    return max(map(abs, errors))


def median(errors: Sequence[float]) -> float:
    """The median absolute error."""
    return statistics.median(map(abs, errors))


def off_centre(errors: Sequence[float]) -> float:
    """How far the median of predicted over measured is from one."""
    return abs(statistics.median(errors))


@dataclass(frozen=True, slots=True)
class Bar:
    """What a group of a family is held to: ``statistic`` of its errors is at most ``limit``.

    ``name`` says which rows it is about; ``metric``, if given, is a word of their metric. A
    limit of None shows the rows apart and holds them to nothing.
    """

    name: str
    statistic: Callable[[Sequence[float]], float]
    limit: float | None
    group: str = ""
    metric: str = ""

    def is_about(self, outcome: Outcome) -> bool:
        """Whether an outcome counts."""
        return outcome.group == self.group and self.metric in outcome.metric

    def is_met(self, errors: Sequence[float]) -> bool:
        """Whether errors keep to it."""
        return self.limit is None or self.statistic(errors) <= self.limit
