"""The diff as a whole, and its JSON form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from graphmem.diffs.items import (
    Change,
    Difference,
    FitChange,
    Group,
    HolderGroup,
    LayerChange,
    PeakMoment,
    Rename,
    Side,
    StepChange,
    Unknowns,
)

SCHEMA = "graphmem.diff/1"


@dataclass(frozen=True)
class Diff:
    """What a change did to a run's memory: the answer of ``graphmem.diff``.

    ``totals`` are the numbers of the peak, and what of it is idle; a range of device bytes has
    two. ``layers`` has every module of both, ``groups`` those that changed in few lines, the
    largest change first; ``new`` and ``gone`` are whole subtrees. ``came`` and ``went`` are
    tensors among the largest of one side that the other does not hold.
    """

    summary: str
    base: Side
    head: Side
    differences: tuple[Difference, ...]
    totals: Mapping[str, Change]
    fits: tuple[FitChange, ...]
    peak: PeakMoment
    steps: tuple[StepChange, ...]
    breakdown: Mapping[str, Change]
    groups: tuple[Group, ...]
    new: tuple[Group, ...]
    gone: tuple[Group, ...]
    renames: tuple[Rename, ...]
    layers: tuple[LayerChange, ...]
    came: tuple[HolderGroup, ...]
    went: tuple[HolderGroup, ...]
    unknown: Unknowns

    @property
    def allocated(self) -> Change:
        """The peak's allocated bytes."""
        return self.totals["allocated_bytes"]

    def to_dict(self) -> dict[str, Any]:
        """The diff as JSON values, schema ``graphmem.diff/1``."""
        result = {
            "schema": SCHEMA,
            "summary": self.summary,
            "base": asdict(self.base),
            "head": asdict(self.head),
            "differences": [asdict(difference) for difference in self.differences],
            "totals": _changes(self.totals),
            "fits": {fit.device: _fit(fit) for fit in self.fits},
            "peak": asdict(self.peak),
            "steps": [_step(step) for step in self.steps],
            "breakdown": _changes(self.breakdown),
            "groups": [group.to_dict() for group in self.groups],
            "new": [group.to_dict() for group in self.new],
            "gone": [group.to_dict() for group in self.gone],
            "renames": [asdict(rename) for rename in self.renames],
            "layers": [layer.to_dict() for layer in self.layers],
            "holders": {
                "came": [asdict(group) for group in self.came],
                "went": [asdict(group) for group in self.went],
            },
            "unknown": asdict(self.unknown),
        }
        plain: dict[str, Any] = json.loads(json.dumps(result))
        return plain

    def __str__(self) -> str:
        from graphmem.render.diff import as_text

        return as_text(self)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of ``Diff.to_dict``, as published in this package."""
    from importlib import resources

    text = resources.files("graphmem").joinpath("diff.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _changes(changes: Mapping[str, Change]) -> dict[str, Any]:
    return {name: change.to_dict() for name, change in changes.items()}


def _fit(fit: FitChange) -> dict[str, Any]:
    return {
        "before": fit.before,
        "after": fit.after,
        "headroom_bytes": fit.headroom_bytes.to_dict(),
    }


def _step(step: StepChange) -> dict[str, Any]:
    return {
        "step": step.step,
        "allocated_bytes": step.allocated_bytes.to_dict(),
        "reserved_bytes": step.reserved_bytes.to_dict(),
        "phases": _changes(step.phases),
    }
