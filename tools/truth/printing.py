"""Outcomes as tables: every row, and the summary by family beside what it is held to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from tabulate import tabulate

from tools.truth import outcome
from tools.truth.outcome import Bar, Outcome

FORMATS = {"table": "simple", "markdown": "github"}
HEADERS = ["rows", "predicted", "to the digit", "median error", "worst", "bar", "met"]
STATISTICS: dict[Callable[[Sequence[float]], float], str] = {
    outcome.worst: "worst",
    outcome.median: "median",
    outcome.off_centre: "median of predicted / measured within",
}

Families = Mapping[str, tuple[Sequence[Bar], Sequence[Outcome]]]
"""For each family its bars and its outcomes."""


def summary(families: Families, kind: str) -> str:
    """A line for each bar, and one for each family without."""
    lines = [line for name, parts in families.items() for line in _summary(name, *parts)]
    return tabulate(lines, headers=["family", *HEADERS], tablefmt=FORMATS[kind])


def _summary(
    name: str, bars: Sequence[Bar], outcomes: Sequence[Outcome]
) -> Iterator[list[str | int]]:
    for bar in bars:
        about = [o for o in outcomes if bar.is_about(o)]
        errors = [o.error for o in about if o.error is not None]
        if errors:
            yield [
                f"{name}: {bar.name}",
                len(about),
                len(errors),
                sum(o.is_exact for o in about),
                _percent(outcome.median(errors)),
                _percent(outcome.worst(errors)),
                "" if bar.limit is None else f"{STATISTICS[bar.statistic]} {_percent(bar.limit)}",
                "" if bar.limit is None else "yes" if bar.is_met(errors) else "no",
            ]
            yield from _peers(about)
    rest = [o for o in outcomes if not any(bar.is_about(o) for bar in bars)]
    if rest:
        errors = [o.error for o in rest if o.error is not None]
        yield [
            f"{name}: the rest" if bars else name,
            len(rest),
            len(errors),
            sum(o.is_exact for o in rest),
            _percent(outcome.median(errors)) if errors else "",
            _percent(outcome.worst(errors)) if errors else "",
            "",
            "",
        ]


def _peers(outcomes: Sequence[Outcome]) -> Iterator[list[str | int]]:
    """What others' predictions of the same rows come to."""
    names = sorted({peer for o in outcomes for peer in o.peers})
    for peer in names:
        errors = [o.peer_errors()[peer] for o in outcomes if peer in o.peers]
        median, worst = _percent(outcome.median(errors)), _percent(outcome.worst(errors))
        yield [f"  {peer}'s own", len(outcomes), len(errors), "", median, worst, "", ""]


def rows(outcomes: Iterable[Outcome], kind: str) -> str:
    """A line for every row that was predicted."""
    lines = [
        [
            o.family,
            o.name,
            o.metric,
            _bytes(o.predicted),
            (">" if o.is_lower_bound else "") + _bytes(o.measured),
            "=" if o.is_exact else _signed(o.error),
            ", ".join(f"{name} {_signed(error)}" for name, error in o.peer_errors().items()),
        ]
        for o in outcomes
        if o.predicted is not None
    ]
    headers = ["family", "row", "metric", "predicted", "measured", "error", "peers"]
    return tabulate(lines, headers, FORMATS[kind], disable_numparse=True, colalign=_ALIGNED)


_ALIGNED = ("left", "left", "left", "right", "right", "right", "left")


def skipped(outcomes: Iterable[Outcome], kind: str) -> str:
    """How many rows were skipped, by family and reason."""
    counts: dict[tuple[str, str], int] = {}
    for o in outcomes:
        if o.predicted is None:
            counts[o.family, o.skipped] = counts.get((o.family, o.skipped), 0) + 1
    lines = [[family, count, why] for (family, why), count in counts.items()]
    return tabulate(lines, ["family", "skipped", "why"], FORMATS[kind])


def _bytes(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _signed(error: float | None) -> str:
    return "" if error is None else f"{100 * error:+.3f} %"


def _percent(error: float) -> str:
    return f"{100 * error:.3f} %"
