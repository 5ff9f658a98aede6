"""What a search for the largest size answers, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from graphmem.largest.curve import Curve
from graphmem.largest.stopping import LimitedBy
from graphmem.report import Fit, Peak

SCHEMA = "graphmem.max-batch/1"


@dataclass(frozen=True, slots=True)
class Sized:
    """The peak at a size, whether that fits, and who holds it."""

    size: int
    peak: Peak
    breakdown: Mapping[str, int]
    fit: Fit

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "size": self.size,
            **asdict(self.peak),
            "breakdown": dict(self.breakdown),
            "fits": self.fit.fits,
            "headroom_bytes": self.fit.headroom_bytes,
        }


@dataclass(frozen=True)
class MaxBatch:
    """The largest size of a dimension that fits.

    ``size`` is 0 where not even the smallest does; ``peak`` is then None. ``next`` is the size
    after, None where there is none: the model takes no more (``refusal``), or memory is no
    limit. ``exceptions`` are smaller sizes that were seen not to fit. ``looked_to`` is None if
    no larger size fits; else those up to it were looked at. ``traced`` are the sizes whose run
    was traced; all others follow from these. Only multiples of ``multiple_of`` are sizes.
    """

    subject: str
    dimension: str
    device: str | None
    budget_bytes: int | None
    allowed_bytes: int
    size: int
    peak: Sized | None
    next: Sized | None
    limited_by: LimitedBy | None
    refusal: str | None
    curve: Curve
    exceptions: tuple[int, ...]
    looked_to: int | None
    traced: tuple[int, ...]
    multiple_of: int
    created_from: Mapping[str, Any]

    def __int__(self) -> int:
        return self.size

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON values, schema ``graphmem.max-batch/1``.

        ``batch`` is there where it is the dimension; ``size`` always.
        """
        batch = {"batch": self.size} if self.dimension == "batch" else {}
        return {
            "schema": SCHEMA,
            "subject": self.subject,
            "created_from": dict(self.created_from),
            "device": self.device,
            "budget_bytes": self.budget_bytes,
            "allowed_bytes": self.allowed_bytes,
            "dimension": self.dimension,
            "size": self.size,
            **batch,
            "peak": None if self.peak is None else self.peak.to_dict(),
            "next": None if self.next is None else self.next.to_dict(),
            "limited_by": self._limit(),
            "curve": {
                "points": [asdict(point) for point in self.curve.points],
                "turns": [asdict(turn) for turn in self.curve.turns],
            },
            "exceptions": list(self.exceptions),
            "looked_to": self.looked_to,
            "traced": list(self.traced),
            "multiple_of": self.multiple_of,
        }

    def _limit(self) -> dict[str, Any] | None:
        if self.refusal is not None:
            return {"kind": "model", "error": self.refusal}
        if self.limited_by is None:
            return None
        return {"kind": "memory", **asdict(self.limited_by)}

    def __str__(self) -> str:
        from graphmem.render.largest import as_text

        return as_text(self.to_dict())
