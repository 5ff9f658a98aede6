"""The rows and sentences of a diff, shared by the terminal and markdown.

What is the same before and after is folded: it has one row, so that the rows of a table still
add up to its total.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphmem.as_text import format_bytes, format_count, format_tensor
from graphmem.diffs import (
    Change,
    Diff,
    FitChange,
    Group,
    HolderGroup,
    Moment,
    Rename,
    Side,
    Status,
    StepChange,
    overview,
    percent,
)
from graphmem.render.columns import NOTHING
from graphmem.render.facts import Fact, Mark, category_name, origin, unknown_item

ARROW = "→"
_MOST_NAMES = 6
_MOST_PLACES = 4
_MOST_TEXT = 200
"""Characters of somebody else's text, such as an option's value."""

_TOTALS = {
    "requested_bytes": "requested",
    "allocated_bytes": "allocated",
    "reserved_bytes": "reserved",
    "device_high_bytes": "nvidia-smi, at most",
    "idle_bytes": "idle: read no more",
}

_KINDS = {
    "input": "Inputs",
    "option": "Options",
    "device": "Device",
    "model": "Model",
    "kernel": "Kernels",
    "version": "Versions",
}


@dataclass(frozen=True, slots=True)
class Row:
    """A name and its bytes before and after."""

    name: str
    change: Change

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Before, after, change and per cent."""
        return (*sizes(self.change), percent(self.change))


def sizes(change: Change) -> tuple[str, str, str]:
    """Before, after and change; a change of nothing, and what there is not, as a dash."""
    before, after = (
        NOTHING if n is None else format_bytes(n) for n in (change.before, change.after)
    )
    return before, after, format_bytes(change.change, signed=True) if change.change else NOTHING


# -- tables


def total_rows(diff: Diff) -> list[Row]:
    """The numbers of the peak that either side has; those that always are shown, if the same."""
    rows = [Row(label, diff.totals[name]) for name, label in _TOTALS.items()]
    always = ("allocated", "reserved")
    return [
        row
        for row in rows
        if (row.change.before, row.change.after) != (None, None)
        and (row.name in always or row.change.change)
    ]


def breakdown_rows(diff: Diff) -> tuple[list[Row], Row]:
    """The categories that changed, the largest change first; and the others, added up."""
    rows = [Row(category_name(name), change) for name, change in diff.breakdown.items()]
    changed = sorted(
        (row for row in rows if row.change.change), key=lambda r: -abs(r.change.change)
    )
    same = [row for row in rows if not row.change.change and row.change.after]
    names = ", ".join(row.name for row in same)
    return changed, Row(f"unchanged: {names}" if names else "", _sum(r.change for r in same))


@dataclass(frozen=True, slots=True)
class LayerRows:
    """The largest changes of layers, all others, what is unchanged, and the sum of the three.

    ``others`` and ``unchanged`` have an empty name where there are none.
    """

    rows: tuple[Group, ...]
    others: Row
    unchanged: Row
    total: Row


def layer_rows(diff: Diff, most: int) -> LayerRows:
    """The places that changed, at a depth of about ``most`` rows; others are summed up."""
    groups = overview(diff.layers, most)
    telling = [group for group in groups if group.live.change or _is_another(group)]
    shown = telling if len(telling) <= most + 1 else telling[:most]
    rest = [group for group in groups if group not in shown]
    same = len(diff.layers) - sum(group.modules for group in groups)
    others = _sum(group.live for group in rest)
    all_changed = _sum(group.live for group in groups)
    return LayerRows(
        rows=tuple(shown),
        others=Row(
            f"{len(rest)} other change{'s' if len(rest) > 1 else ''}" if rest else "", others
        ),
        unchanged=Row(
            f"{same:,} module{'' if same == 1 else 's'} unchanged" if same else "",
            _less(diff.allocated, all_changed),
        ),
        total=Row("total", diff.allocated),
    )


def _is_another(group: Group) -> bool:
    before, after = group.types
    return before is not None and after is not None and before != after


def what(group: Group) -> str:
    """What happened to a group's modules, and their class: ``new Linear``, ``ReLU → GELU``."""
    before, after = group.types
    if group.status in (Status.NEW, Status.GONE):
        return f"{group.status} {after or before or f'{group.modules} modules'}"
    if before == after:
        return after or f"{group.modules} modules"
    return f"{before or NOTHING} {ARROW} {after or NOTHING}"


def _sum(changes: Iterable[Change]) -> Change:
    items = list(changes)
    return Change(sum(c.before or 0 for c in items), sum(c.after or 0 for c in items))


def _less(whole: Change, part: Change) -> Change:
    """What is left; nothing where there is no number at all."""
    before, after = whole.before or 0, whole.after or 0
    return Change(before - (part.before or 0), after - (part.after or 0))


# -- sentences


def sides(diff: Diff, mark: Mark = str) -> Iterator[Fact]:
    """What was compared with what."""
    yield "Base", _side(diff.base, mark)
    yield "Head", _side(diff.head, mark)


def differing(diff: Diff, mark: Mark = str, most: int = 6) -> Iterator[Fact]:
    """What the two runs do not have in common, by kind."""
    for kind, label in _KINDS.items():
        found: dict[tuple[str | None, str | None], list[str]] = {}
        for each in diff.differences:
            if each.kind == kind:
                found.setdefault((each.before, each.after), []).append(each.what)
        if found:
            texts = [_difference(names, *sides, mark) for sides, names in found.items()]
            yield label, _listed(texts, most)


def facts(diff: Diff, mark: Mark = str) -> Iterator[Fact]:
    """What stands between the summary and the tables."""
    for fit in diff.fits:
        yield "Fits", _fit(fit, mark)
    yield "Peak", _moment(diff, mark)
    for label, groups in (("New", diff.new), ("Gone", diff.gone)):
        if groups:
            yield label, _listed([_own(group, mark) for group in groups], _MOST_PLACES)
    if diff.renames:
        yield "Renamed", _listed([_rename(rename, mark) for rename in diff.renames], _MOST_PLACES)


def step_peaks(diff: Diff) -> Iterator[Fact]:
    """The peak of each step, where there is more than one."""
    if len(diff.steps) > 1:
        texts = [f"{step.step}: {_pair(step.allocated_bytes)}" for step in diff.steps]
        yield "Steps", _listed(texts, _MOST_NAMES)


def steps(diff: Diff) -> Iterator[Fact]:
    """The peak of each step and of its phases, where there is more than one of them."""
    for step in diff.steps:
        phases = {n: c for n, c in step.phases.items() if (c.before, c.after) != (None, None)}
        if len(diff.steps) > 1 or len(phases) > 1:
            yield f"Step {step.step}", _step(step, phases)


def holder(group: HolderGroup, mark: Mark = str) -> str:
    """``12 x bf16[8, 1024], saved for backward, aten.mm of layers.0-11 (model.py:3)``."""
    example = group.example
    tensor = mark(format_tensor(example.dtype, example.shape))
    times = f"{group.tensors} x up to {tensor}" if group.tensors > 1 else tensor
    place = origin(example.op, group.modules, example.source, mark)
    return f"{times}, {category_name(example.category)}, {place}"


def unknowns(diff: Diff, mark: Mark = str, plain: Mark = str) -> Iterator[tuple[str, str]]:
    """``new`` or ``gone``, and what is not known."""
    for word, items in (("new", diff.unknown.new), ("gone", diff.unknown.gone)):
        for item in items:
            yield word, unknown_item(item, mark, plain)


def _side(side: Side, mark: Mark) -> str:
    subject = "" if side.subject == side.name else f"{mark(side.subject)}, "
    return f"{mark(side.name)} ({subject}{format_count(side.parameters)} parameters)"


def _difference(names: list[str], before: str | None, after: str | None, mark: Mark) -> str:
    texts = ("none" if text is None else mark(_cut(text)) for text in (before, after))
    return f"{_listed(list(map(mark, names)), _MOST_NAMES)} {f' {ARROW} '.join(texts)}"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"


def _listed(texts: Sequence[str], most: int) -> str:
    more = len(texts) - most
    return ", ".join([*texts[:most], *([f"and {more} more"] if more > 0 else [])])


def _fit(fit: FitChange, mark: Mark) -> str:
    words = {None: "not asked", True: "yes", False: "no"}
    answer = f" {ARROW} ".join(dict.fromkeys(words[side] for side in (fit.before, fit.after)))
    spare = [n for n in (fit.headroom_bytes.before, fit.headroom_bytes.after) if n is not None]
    texts = [(format_bytes(abs(n)), "to spare" if n >= 0 else "too much") for n in spare]
    if len({word for _, word in texts}) == 1:
        sizes_ = dict.fromkeys(size for size, _ in texts)
        return f"{mark(fit.device)}: {answer}, {f' {ARROW} '.join(sizes_)} {texts[0][1]}"
    return f"{mark(fit.device)}: {answer}, {f' {ARROW} '.join(map(' '.join, texts))}"


def _moment(diff: Diff, mark: Mark) -> str:
    before, after = diff.peak.before, diff.peak.after
    if not diff.peak.moved:
        return f"in the same place: {_at(after, mark)}"
    return f"moved: {_at(before, mark)} {ARROW} {_at(after, mark)}"


def _at(moment: Moment, mark: Mark) -> str:
    place = origin(moment.op, moment.module, moment.source, mark)
    return f"{moment.phase} at {place}" if moment.phase else place


def _own(group: Group, mark: Mark) -> str:
    """``head (Sequential, 3 modules, 4.00 MiB)`` of what only one side has."""
    before, after = group.types
    size = group.live.before if group.live.after is None else group.live.after
    count = f"{group.modules} modules" if group.modules > 1 else None
    texts = (after or before, count, format_bytes(size or 0))
    return f"{mark(group.label)} ({', '.join(filter(None, texts))})"


def _rename(rename: Rename, mark: Mark) -> str:
    before, after = (
        mark(path) if path else "the top level" for path in (rename.before, rename.after)
    )
    count = "" if rename.modules == 1 else f" ({rename.modules} modules)"
    return f"{before} {ARROW} {after}{count}{' (moved)' if rename.moved else ''}"


def _step(step: StepChange, phases: Mapping[str, Change]) -> str:
    own = ", ".join(f"{name} {_pair(change)}" for name, change in phases.items())
    return f"{_pair(step.allocated_bytes)}" + (f" ({own})" if own else "")


def _pair(change: Change) -> str:
    before, after, _ = sizes(change)
    return after if before == after else f"{before} {ARROW} {after}"
