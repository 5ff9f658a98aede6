"""What a sweep says of one case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum, unique
from typing import Any

from graphmem.sweeps.case import Case


@unique
class How(StrEnum):
    """Where an answer comes from; it is the same from everywhere."""

    TRACED = "traced"
    INSTANTIATED = "instantiated"  # from the traces of other sizes, see graphmem.instantiate
    CACHED = "cached"


@dataclass(frozen=True, slots=True)
class Answer:
    """The worst moment of a run; fields as in ``report.Peak`` and ``report.Fit``.

    ``fits`` and what follows it are None where no GPU is named; ``out_of_memory_at`` is the
    module that the run ends in. ``unknown`` counts what could not be known.
    """

    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int | None
    device_bytes: tuple[int, int] | None
    step: int
    phase: str
    op: str
    op_index: int
    module: str
    source: str | None
    unknown: int
    fits: bool | None = None
    headroom_bytes: int | None = None
    out_of_memory_at: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A case and its answer, or in one line why there is none.

    ``seconds`` are those that this case took, None of a cached one.
    """

    case: Case
    answer: Answer | None
    error: str | None = None
    how: How | None = None
    seconds: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """The outcome as JSON values."""
        answer = None if self.answer is None else asdict(self.answer)
        return {
            **self.case.to_dict(),
            "answer": answer,
            "error": self.error,
            "how": self.how,
            "seconds": self.seconds,
        }


def cached(case: Case, answer: Mapping[str, Any]) -> Outcome:
    """The outcome of an answer that was kept as JSON."""
    made = Answer(**answer)
    if made.device_bytes is not None:
        low, high = made.device_bytes
        made = replace(made, device_bytes=(low, high))
    return Outcome(case, made, how=How.CACHED)
