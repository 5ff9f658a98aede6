"""Two reports in, a diff out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphmem.diffs.groups import grouped, only_one_side
from graphmem.diffs.holders import came_and_went
from graphmem.diffs.items import (
    Change,
    FitChange,
    LayerChange,
    Moment,
    PeakMoment,
    Side,
    Status,
    StepChange,
    Unknowns,
)
from graphmem.diffs.layers import layer_changes, renames
from graphmem.diffs.settings import differences
from graphmem.diffs.summary import summary
from graphmem.diffs.whole import Diff
from graphmem.report import BREAKDOWN, Peak, Report, Step, UnknownItem


def compare(base: Report, head: Report, names: tuple[str, str] | None = None) -> Diff:
    """What is different in ``head``.

    Args:
        base: the report before.
        head: the report after.
        names: what the two are called, such as their files; their subjects if None.
    """
    called = names or (base.subject.name, head.subject.name)
    layers = layer_changes(base.layers, head.layers)
    new_names = _new_names(layers)
    old_names = {after: before for before, after in new_names.items()}
    came, went = came_and_went(base, head, layers)
    differ = differences(base, head)
    fits = tuple(_fits(base, head))
    totals = _totals(base, head)
    breakdown = {n: Change(base.breakdown.get(n, 0), head.breakdown.get(n, 0)) for n in BREAKDOWN}
    return Diff(
        summary=summary(totals, breakdown, layers, fits, differ),
        base=_side(base, called[0]),
        head=_side(head, called[1]),
        differences=differ,
        totals=totals,
        fits=fits,
        peak=_peak(base.peak, head.peak, new_names),
        steps=tuple(_steps(base.steps, head.steps)),
        breakdown=breakdown,
        groups=grouped(layers),
        new=only_one_side(layers, Status.NEW),
        gone=only_one_side(layers, Status.GONE),
        renames=renames(layers),
        layers=layers,
        came=came,
        went=went,
        unknown=_unknowns(base.unknown, head.unknown, old_names),
    )


def _new_names(layers: tuple[LayerChange, ...]) -> dict[str, str]:
    """The path in the head of each module of the base that has another there."""
    return {
        layer.before.module: layer.after.module
        for layer in layers
        if layer.before and layer.after and layer.before.module != layer.after.module
    }


def _side(report: Report, name: str) -> Side:
    return Side(
        name=name,
        subject=report.subject.name,
        parameters=report.subject.parameters,
        graphmem=report.graphmem,
        torch=report.torch,
        device=None if report.device is None else str(report.device["name"]),
    )


def _totals(base: Report, head: Report) -> dict[str, Change]:
    one, other = base.peak, head.peak
    spans = [peak.device_bytes or (None, None) for peak in (one, other)]
    return {
        "requested_bytes": Change(one.requested_bytes, other.requested_bytes),
        "allocated_bytes": Change(one.allocated_bytes, other.allocated_bytes),
        "reserved_bytes": Change(one.reserved_bytes, other.reserved_bytes),
        "device_low_bytes": Change(*(low for low, _ in spans)),
        "device_high_bytes": Change(*(high for _, high in spans)),
        "idle_bytes": Change(base.idle_bytes, head.idle_bytes),
        "last_use_peak_bytes": Change(base.last_use_peak_bytes, head.last_use_peak_bytes),
    }


def _fits(base: Report, head: Report) -> Iterator[FitChange]:
    for name in {**base.fits, **head.fits}:
        before, after = base.fits.get(name), head.fits.get(name)
        yield FitChange(
            device=name,
            before=None if before is None else before.fits,
            after=None if after is None else after.fits,
            headroom_bytes=Change(
                None if before is None else before.headroom_bytes,
                None if after is None else after.headroom_bytes,
            ),
        )


def _peak(base: Peak, head: Peak, new_names: Mapping[str, str]) -> PeakMoment:
    was = (base.phase, base.op, new_names.get(base.module, base.module))
    return PeakMoment(_moment(base), _moment(head), was != (head.phase, head.op, head.module))


def _moment(peak: Peak) -> Moment:
    return Moment(peak.step, peak.phase, peak.op, peak.module, peak.source)


def _steps(base: tuple[Step, ...], head: tuple[Step, ...]) -> Iterator[StepChange]:
    """Every step that either has."""
    before, after = ({step.step: step for step in steps} for steps in (base, head))
    for number in sorted({**before, **after}):
        sides = (before.get(number), after.get(number))
        phases = {name: None for side in sides if side is not None for name in side.phases}
        yield StepChange(
            number,
            Change(*(None if side is None else side.allocated_bytes for side in sides)),
            Change(*(None if side is None else side.reserved_bytes for side in sides)),
            {
                name: Change(*(None if side is None else side.phases.get(name) for side in sides))
                for name in phases
            },
        )


def _unknowns(
    base: tuple[UnknownItem, ...], head: tuple[UnknownItem, ...], old_names: Mapping[str, str]
) -> Unknowns:
    """What is said of one side alone; what is assumed, and its bytes, may differ."""
    before = {(item.what, item.where) for item in base}
    after = {(item.what, old_names.get(item.where, item.where)) for item in head}
    return Unknowns(
        new=tuple(i for i in head if (i.what, old_names.get(i.where, i.where)) not in before),
        gone=tuple(i for i in base if (i.what, i.where) not in after),
    )
