"""The formula's terms beside what a simulated run holds.

Two columns of the simulation: what is live at the peak, and the most that a step ever keeps
of a category. The formula adds the second kind, as if all were there at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphmem.as_text import format_count, format_decimal, format_share, format_tensor
from graphmem.report import Layer, Report
from graphmem.textbook import formula
from graphmem.textbook.formula import Numbers, Term

_AT_PEAK: Mapping[str, tuple[str, ...]] = {
    formula.PARAMETERS: ("parameters",),
    formula.GRADIENTS: ("gradients",),
    formula.OPTIMIZER: ("optimizer_states",),
    formula.ACTIVATIONS: ("saved_for_backward",),
    formula.TEMPORARIES: ("temporaries", "workspaces", "allocator_slack"),
}
"""Which categories of a report's breakdown a term stands for."""

_MOST_TYPES = 3
OTHERS = "not in the formula"


@dataclass(frozen=True, slots=True)
class Compared:
    """A term of the formula, and the simulated bytes.

    ``most_bytes`` is what a whole step makes of them, None where that is not counted;
    ``why`` says in sentences where they differ.
    """

    name: str
    textbook_bytes: int
    at_peak_bytes: int
    most_bytes: int | None
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Simulated:
    """A simulated run beside the formula; the rows add up to ``allocated_bytes``."""

    subject: str
    allocated_bytes: int
    reserved_bytes: int | None
    step: int
    phase: str
    rows: tuple[Compared, ...]


def compared(numbers: Numbers, terms: Sequence[Term], report: Report) -> Simulated:
    """The terms beside a report."""
    rows = [_row(term, numbers, report) for term in terms]
    rest = report.peak.allocated_bytes - sum(row.at_peak_bytes for row in rows)
    rows.append(Compared(OTHERS, 0, rest, None, tuple(_others(report))))
    peak = report.peak
    return Simulated(
        report.subject.name,
        peak.allocated_bytes,
        peak.reserved_bytes,
        peak.step,
        peak.phase,
        tuple(rows),
    )


def _row(term: Term, numbers: Numbers, report: Report) -> Compared:
    at_peak = sum(report.breakdown[name] for name in _AT_PEAK[term.name])
    most = _most(term.name, report.layers)
    why = (*_why(term, numbers, report, most or 0), *_not_all(report, at_peak, most))
    return Compared(term.name, term.bytes, at_peak, most, why)


def _most(name: str, layers: Sequence[Layer]) -> int | None:
    if name == formula.PARAMETERS:
        return sum(layer.parameter_bytes for layer in layers)
    if name == formula.GRADIENTS:
        return sum(layer.gradient_bytes for layer in layers)
    if name == formula.OPTIMIZER:
        return sum(layer.optimizer_bytes for layer in layers)
    if name == formula.ACTIVATIONS:
        return sum(layer.saved_bytes for layer in layers)
    return None


def _not_all(report: Report, at_peak: int, most: int | None) -> Iterator[str]:
    """That the peak is where not all of a category is there.

    ``most`` is of blocks, with the slack that a breakdown has apart.
    """
    if most is None or at_peak + report.breakdown["allocator_slack"] >= most:
        return
    share = format_share(at_peak, most) if at_peak else "none"
    yield f"{share} of {format_decimal(most)} stand at the peak, in {report.peak.phase}"


def _why(term: Term, numbers: Numbers, report: Report, most: int) -> Iterator[str]:
    if term.name == formula.PARAMETERS and numbers.params != report.subject.parameters:
        real = format_count(report.subject.parameters)
        yield f"the model has {real} parameters, not {format_count(numbers.params)}"
    if term.name in (formula.GRADIENTS, formula.OPTIMIZER):
        yield from _frozen(report)
    if term.name == formula.ACTIVATIONS:
        yield from _activations(term, numbers, report, most)
    if term.name == formula.TEMPORARIES:
        yield from _largest(report, "temporaries")


def _frozen(report: Report) -> Iterator[str]:
    subject = report.subject
    if subject.trainable_parameters != subject.parameters:
        trained, all_ = map(format_count, (subject.trainable_parameters, subject.parameters))
        yield f"{trained} of {all_} parameters are trained"


def _activations(term: Term, numbers: Numbers, report: Report, most: int) -> Iterator[str]:
    factor = numbers.activation_factor
    if numbers.activations is None and numbers.activation_bytes is None and term.bytes:
        factor = formula.LEDGER_FACTOR if factor is None else factor
        right = float(factor * most / term.bytes)
        yield f"the factor of this model is {right:.1f}, not {float(factor):g}"
    by_type: dict[str, int] = {}
    for layer in report.layers:
        by_type[layer.type] = by_type.get(layer.type, 0) + layer.saved_bytes
    most_of = sorted(by_type.items(), key=lambda item: -item[1])[:_MOST_TYPES]
    parts = [f"{format_share(nbytes, most)} by {name}" for name, nbytes in most_of if nbytes]
    if parts:
        yield f"kept: {', '.join(parts)}"


def _largest(report: Report, category: str) -> Iterator[str]:
    """The largest holder of a category at the peak."""
    for holder in report.holders:
        if holder.category == category:
            what = format_tensor(holder.dtype, holder.shape)
            size, by = format_decimal(holder.bytes), holder.op or holder.module
            yield f"largest: {what}, {size}, of {by}"
            return


def _others(report: Report) -> Iterator[str]:
    for name in ("buffers", "inputs", "outputs"):
        if nbytes := report.breakdown[name]:
            yield f"{name}: {format_decimal(nbytes)}"
