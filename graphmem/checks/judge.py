"""Whether a report keeps within its limits, and the reasons if not.

1. A budget is held against the segments that PyTorch's allocator takes, with free ones given
   back near it, as ``max-batch`` does; where that is not known (a report that was read from a
   file, another allocator) against ``reserved_bytes``, and where nothing is reserved against
   ``allocated_bytes``.
2. A GPU is one that ``Report.fits`` says the run fits on.
3. Growth is that of ``peak.allocated_bytes``, which is exact, over the baseline's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum, unique
from typing import Any

from graphmem.as_text import format_bytes
from graphmem.checks.limits import Limits
from graphmem.report import Fit, Report


@unique
class FailureKind(StrEnum):
    """The rules that a model can break."""

    BUDGET = "over-budget"
    DEVICE = "does-not-fit"
    GROWTH = "grown"
    NO_BASELINE = "no-baseline"
    NOT_ANALYZED = "not-analyzed"


@dataclass(frozen=True, slots=True)
class Failure:
    """A broken rule, in one sentence; ``bytes`` are those over the limit, where that is known."""

    kind: FailureKind
    text: str
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one model.

    ``spare_bytes`` is what is left under the nearest of budget and GPU, negative if nothing;
    ``moment`` says where the peak is: step, phase, op, module and source. Sizes are None where
    there was no report, or no such limit.
    """

    name: str
    subject: str
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    budget_bytes: int | None = None
    device: str | None = None
    spare_bytes: int | None = None
    before_bytes: int | None = None
    growth_bytes: int | None = None
    allowed_growth: str | None = None
    moment: Mapping[str, Any] | None = None
    largest: tuple[tuple[str, int], ...] = ()
    failures: tuple[Failure, ...] = ()

    def __bool__(self) -> bool:
        return not self.failures

    @property
    def is_unusable(self) -> bool:
        """Whether there is no report at all."""
        return any(f.kind is FailureKind.NOT_ANALYZED for f in self.failures)

    def to_dict(self) -> dict[str, Any]:
        """The outcome as JSON values."""
        values = asdict(self)
        values["ok"] = bool(self)
        values["largest"] = dict(self.largest)
        values["failures"] = [{**asdict(f), "kind": str(f.kind)} for f in self.failures]
        return values


def failed(name: str, subject: str, reason: str) -> Outcome:
    """The outcome of a model that can't be analyzed."""
    return Outcome(name, subject, failures=(Failure(FailureKind.NOT_ANALYZED, reason),))


def judge(
    name: str, report: Report, limits: Limits, before: Report | None, *, judges_growth: bool = True
) -> Outcome:
    """The outcome of a model that was analyzed.

    Args:
        before: the baseline's report.
        judges_growth: not where the baseline is being made anew.
    """
    peak = report.peak
    grown = None if before is None else peak.allocated_bytes - before.peak.allocated_bytes
    fits = tuple(_fits(report, limits))
    failures = [_misfit(kind, fit) for kind, fit in fits if not fit]
    if judges_growth:
        failures += _grown(report, limits, before)
    largest = sorted(report.breakdown.items(), key=lambda item: -item[1])[:3]
    return Outcome(
        name=name,
        subject=report.subject.name,
        allocated_bytes=peak.allocated_bytes,
        reserved_bytes=peak.reserved_bytes,
        budget_bytes=limits.budget,
        device=limits.device,
        spare_bytes=min((fit.headroom_bytes for _, fit in fits), default=None),
        before_bytes=None if before is None else before.peak.allocated_bytes,
        growth_bytes=grown,
        allowed_growth=None if limits.growth is None else limits.growth.text,
        moment={key: getattr(peak, key) for key in ("step", "phase", "op", "module", "source")},
        largest=tuple((category, nbytes) for category, nbytes in largest if nbytes),
        failures=tuple(failures),
    )


def _fits(report: Report, limits: Limits) -> Iterator[tuple[FailureKind, Fit]]:
    if limits.budget is not None:
        yield FailureKind.BUDGET, _within(report, limits.budget)
    if limits.device is not None:
        known = report.fits.get(limits.device)
        fit = report.fits(limits.device) if known is None else known
        yield FailureKind.DEVICE, fit


def _within(report: Report, budget: int) -> Fit:
    if report.fits.can_ask:
        return report.fits(f"{budget}B")
    peak = report.peak
    held = peak.allocated_bytes if peak.reserved_bytes is None else peak.reserved_bytes
    return Fit(f"a budget of {format_bytes(budget)}", held <= budget, budget - held, None)


def _misfit(kind: FailureKind, fit: Fit) -> Failure:
    over, at = -fit.headroom_bytes, fit.out_of_memory_at
    where = f"; it runs out in {at.phase} at {at.op} of {at.module}" if at and at.op else ""
    if kind is FailureKind.DEVICE:
        text = f"does not fit on {fit.device}: {format_bytes(over)} are missing{where}"
    else:
        text = f"{format_bytes(over)} over {fit.device}{where}"
    return Failure(kind, text, over)


def _grown(report: Report, limits: Limits, before: Report | None) -> Iterator[Failure]:
    if limits.growth is None:
        return
    if before is None:
        yield Failure(
            FailureKind.NO_BASELINE,
            f"may grow by {limits.growth.text}, but the baseline has no report of it: "
            "graphmem check --update-baseline makes one",
        )
        return
    old, new = before.peak.allocated_bytes, report.peak.allocated_bytes
    over = new - old - limits.growth.allowed(old)
    if over > 0:
        grown = format_bytes(new - old, signed=True)
        yield Failure(
            FailureKind.GROWTH,
            f"grew by {grown} to {format_bytes(new)}, and {limits.growth.text} is allowed",
            over,
        )
