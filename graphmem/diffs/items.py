"""The parts of a diff: finished numbers before and after, all sizes integers of bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum, unique
from typing import Any

from graphmem.report import Holder, Layer, UnknownItem

COLUMNS = (
    "live_at_peak_bytes",
    "parameter_bytes",
    "gradient_bytes",
    "optimizer_bytes",
    "saved_bytes",
    "output_bytes",
)
"""What is compared of a module. Its peaks are not: they are those of the whole device."""


@dataclass(frozen=True, slots=True)
class Change:
    """A number before and after; None where there is none on that side."""

    before: int | None
    after: int | None

    @property
    def change(self) -> int:
        """After less before; what is not there counts as 0."""
        return (self.after or 0) - (self.before or 0)

    def to_dict(self) -> dict[str, int | None]:
        """Before, after and change; the change is null where a side is unknown."""
        known = self.before is not None and self.after is not None
        return {
            "before": self.before,
            "after": self.after,
            "change": self.change if known else None,
        }


def sum_of(changes: Iterable[Change]) -> Change:
    """The sums of both sides; None where no item has that side."""
    items = list(changes)
    before = [item.before for item in items if item.before is not None]
    after = [item.after for item in items if item.after is not None]
    return Change(sum(before) if before else None, sum(after) if after else None)


@unique
class Status(StrEnum):
    """What became of a module."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    RENAMED = "renamed"
    MOVED = "moved"
    NEW = "new"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two reports: its name (a file or subject), and what it is of."""

    name: str
    subject: str
    parameters: int
    graphmem: str
    torch: str
    device: str | None


@dataclass(frozen=True, slots=True)
class StepChange:
    """The peaks of one step."""

    step: int
    allocated_bytes: Change
    reserved_bytes: Change
    phases: Mapping[str, Change]


@dataclass(frozen=True, slots=True)
class Moment:
    """When a peak is, and who runs then."""

    step: int
    phase: str
    op: str
    module: str
    source: str | None


@dataclass(frozen=True, slots=True)
class PeakMoment:
    """Where the peak was and is; it moved if phase, operator or module is another one.

    A module that was renamed is the same one.
    """

    before: Moment
    after: Moment
    moved: bool


@dataclass(frozen=True, slots=True)
class Rename:
    """A part of the paths of ``modules`` modules that is another one now."""

    before: str
    after: str
    modules: int
    moved: bool


@dataclass(frozen=True, slots=True)
class LayerChange:
    """A module before and after. ``is_changed`` is about bytes and class, not about the name."""

    before: Layer | None
    after: Layer | None
    status: Status

    @property
    def module(self) -> str:
        """Its path: of the head, or of the base if it is gone."""
        layer = self.after or self.before
        assert layer is not None
        return layer.module

    @property
    def types(self) -> tuple[str | None, str | None]:
        """Its class before and after."""
        before, after = (None if s is None else s.type for s in (self.before, self.after))
        return before, after

    @property
    def columns(self) -> dict[str, Change]:
        """Its bytes by ``COLUMNS``."""
        sides = zip(_sizes(self.before), _sizes(self.after), strict=True)
        return {name: Change(*pair) for name, pair in zip(COLUMNS, sides, strict=True)}

    @property
    def live(self) -> Change:
        """Its bytes at the peak."""
        before, after = self.before, self.after
        return Change(
            None if before is None else before.live_at_peak_bytes,
            None if after is None else after.live_at_peak_bytes,
        )

    @property
    def is_changed(self) -> bool:
        """Whether it is new, gone, of another class, or has other bytes."""
        before, after = self.types
        return before != after or _sizes(self.before) != _sizes(self.after)

    def to_dict(self) -> dict[str, Any]:
        """The module as JSON values."""
        return {
            "module": self.module,
            "status": str(self.status),
            "before": None if self.before is None else _identity(self.before),
            "after": None if self.after is None else _identity(self.after),
            **{name: change.to_dict() for name, change in self.columns.items()},
        }


def _sizes(layer: Layer | None) -> tuple[int | None, ...]:
    return tuple(None if layer is None else getattr(layer, name) for name in COLUMNS)


def _identity(layer: Layer) -> dict[str, Any]:
    return {
        "module": layer.module,
        "type": layer.type,
        "calls": layer.calls,
        "parameters": layer.parameters,
    }


@dataclass(frozen=True, slots=True)
class Group:
    """Changed modules whose paths differ in numbers alone, added up."""

    label: str
    modules: int
    types: tuple[str | None, str | None]
    status: Status
    columns: Mapping[str, Change]

    @property
    def live(self) -> Change:
        """Their bytes at the peak."""
        return self.columns["live_at_peak_bytes"]

    def to_dict(self) -> dict[str, Any]:
        """The group as JSON values."""
        before, after = self.types
        return {
            "modules": self.label,
            "count": self.modules,
            "status": str(self.status),
            "type": {"before": before, "after": after},
            **{name: change.to_dict() for name, change in self.columns.items()},
        }


@dataclass(frozen=True, slots=True)
class HolderGroup:
    """Tensors of one maker that one side has among its largest, and the other has not.

    ``example`` is the largest of them, ``modules`` where they are from.
    """

    bytes: int
    tensors: int
    modules: str
    example: Holder


@dataclass(frozen=True, slots=True)
class Difference:
    """Something that the two runs do not have in common: an input, an option, a version.

    The sides are texts for people, None where there is nothing.
    """

    kind: str
    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class FitChange:
    """Whether the run fits on a GPU; None where a report does not say."""

    device: str
    before: bool | None
    after: bool | None
    headroom_bytes: Change


@dataclass(frozen=True, slots=True)
class Unknowns:
    """What could not be known in one of the two and is not said of the other."""

    new: tuple[UnknownItem, ...]
    gone: tuple[UnknownItem, ...]
