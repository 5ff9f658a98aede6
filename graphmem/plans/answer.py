"""A plan, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from graphmem.plans.search import Searched, Tried

SCHEMA = "graphmem.plan/1"


@dataclass(frozen=True)
class Plan:
    """What to change so that a training fits.

    ``searched`` has the run as it is, the combinations that fit, the cheapest first, and those
    that do not. ``standing_bytes`` are the parameters and buffers of the run as it is.
    """

    subject: str
    device: str | None
    budget_bytes: int | None
    allowed_bytes: int
    gpus: int | None
    standing_bytes: int
    searched: Searched
    created_from: Mapping[str, Any]
    seconds: float

    def __bool__(self) -> bool:
        """Whether anything fits."""
        return self.searched.base.fit.fits or bool(self.searched.fitting)

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON values, schema ``graphmem.plan/1``.

        ``nearest`` is there where nothing fits: the combination that lacks the least.
        """
        searched = self.searched
        fits = [self._line(one) for one in searched.fitting]
        others = [self._line(one) for one in searched.others]
        tried = [self._line(searched.base), *others]
        return {
            "schema": SCHEMA,
            "subject": self.subject,
            "created_from": dict(self.created_from),
            "device": self.device,
            "budget_bytes": self.budget_bytes,
            "allowed_bytes": self.allowed_bytes,
            "gpus": self.gpus,
            "standing_bytes": self.standing_bytes,
            "base": self._line(searched.base),
            "fitting": fits,
            "others": others,
            "nearest": None if self else max(tried, key=lambda line: line["headroom_bytes"]),
            "failed": [
                {"techniques": [t.name for t in names], "error": error}
                for names, error in searched.failed
            ],
            "impossible": searched.impossible,
            "not_tried": searched.rest,
            "seconds": self.seconds,
        }

    def _line(self, one: Tried) -> dict[str, Any]:
        flops, again = one.flops
        return {
            "techniques": [
                {
                    "name": t.name,
                    "loses": t.loses.words,
                    "cost": t.cost,
                    "flag": t.flag,
                    "code": t.code,
                }
                for t in one.techniques
            ],
            "loses": max((t.loses for t in one.techniques), default=0),
            "fits": one.fit.fits,
            "headroom_bytes": one.fit.headroom_bytes,
            "saved_bytes": self.searched.base.peak.allocated_bytes - one.peak.allocated_bytes,
            "flops": flops,
            "recomputed_flops": again,
            **asdict(one.peak),
        }

    def __str__(self) -> str:
        from graphmem.render.plan import as_text

        return as_text(self.to_dict())
