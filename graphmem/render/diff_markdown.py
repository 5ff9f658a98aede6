"""A diff as GitHub-flavoured markdown: a comment on a pull request, at most 60 kB long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from graphmem.as_text import format_bytes, shorten, shorten_dotted
from graphmem.diffs import Diff, Group, HolderGroup
from graphmem.render.columns import NOTHING
from graphmem.render.diff_rows import (
    breakdown_rows,
    differing,
    facts,
    holder,
    layer_rows,
    sides,
    sizes,
    steps,
    total_rows,
    unknowns,
    what,
)
from graphmem.render.facts import Fact
from graphmem.render.markdown import code, plain

MOST_BYTES = 60_000
"""A comment on GitHub has at most 65,536 characters; some are left for what stands around it."""

_OPEN_LAYERS = 12
_ALL_LAYERS = 200
_MOST_HOLDERS = 20
_MOST_UNKNOWN = 20
_MOST_NAME = 100
"""Characters of a name; longer ones lose their middle."""


def as_markdown(diff: Diff) -> str:
    """A diff as markdown: what to look at first, and the rest folded away.

    Where it would be longer than ``MOST_BYTES``, its lists are cut, and say so.
    """
    for most in (6, 3, 1):
        top = _top(diff, most)
        if 2 * len(top.encode()) <= MOST_BYTES:
            break
    for most in (_ALL_LAYERS, 100, 50, 25, 12, 6, 3, 1):
        text = f"{top}\n\n{_details(diff, most)}\n"
        if len(text.encode()) <= MOST_BYTES:
            break
    return text


def _top(diff: Diff, most: int) -> str:
    """What is not folded; of each kind of difference only ``most``."""
    sections = (
        f"**{plain(diff.summary)}**",
        _facts((*differing(diff, _name, most), *facts(diff, _name))),
        _memory(diff),
        _layers(diff, _OPEN_LAYERS),
    )
    return "\n\n".join(section for section in sections if section)


def _name(text: str) -> str:
    """A name as a code span, not too long."""
    return code(shorten(text, _MOST_NAME))


def _words(text: str) -> str:
    return plain(shorten(text, 4 * _MOST_NAME))


def _facts(found: Iterable[Fact]) -> str:
    return "\n".join(f"- **{label}:** {text}" for label, text in found)


# -- tables


def _memory(diff: Diff) -> str:
    totals = [(f"**{row.name}**", *row.cells) for row in total_rows(diff)]
    changed, same = breakdown_rows(diff)
    rows = [*totals, *((row.name, *row.cells) for row in changed)]
    if same.name:
        rows.append((same.name, *same.cells))
    return _table(("at the peak", "before", "after", "change", ""), rows)


def _layers(diff: Diff, most: int) -> str:
    table = layer_rows(diff, most)
    if not table.rows:
        return "No layer changed."
    rows = [(_path(group), _words(what(group)), *sizes(group.live)) for group in table.rows]
    rest = (table.others, table.unchanged, table.total)
    rows += [(row.name, "", *sizes(row.change)) for row in rest if row.name]
    return _table(("layers, at the peak", "", "before", "after", "change"), rows, texts=2)


def _every_layer(diff: Diff, most: int) -> str:
    """All changed layers; ``training`` are gradients and optimizer states."""
    headers = ("layers", "", "count", "weights", "training", "saved", "output", "at the peak")
    table = _table(headers, [_in_full(group) for group in diff.groups[:most]], texts=2)
    return f"{table}{_more(len(diff.groups) - most)}"


def _in_full(group: Group) -> tuple[str, ...]:
    changes = {name: change.change for name, change in group.columns.items()}
    training = changes["gradient_bytes"] + changes["optimizer_bytes"]
    others = [changes[name] for name in ("saved_bytes", "output_bytes", "live_at_peak_bytes")]
    signed = (
        format_bytes(n, signed=True) if n else NOTHING
        for n in (changes["parameter_bytes"], training, *others)
    )
    return (_path(group), _words(what(group)), str(group.modules), *signed)


def _path(group: Group) -> str:
    return code(shorten_dotted(group.label, _MOST_NAME))


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1) -> str:
    """A table whose first columns are texts, the others numbers; pipes are escaped."""
    align = ["---"] * texts + ["--:"] * (len(headers) - texts)
    escaped = ([text.replace("|", "\\|") for text in row] for row in rows)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headers, align, *escaped))


# -- folded


def _details(diff: Diff, most: int) -> str:
    parts: tuple[tuple[str, Callable[[], str]], ...] = (
        (f"Every layer that changed, in {len(diff.groups)} rows", lambda: _every_layer(diff, most)),
        (
            "Tensors that came and went",
            lambda: "\n\n".join(_holders(diff, min(most, _MOST_HOLDERS))),
        ),
        ("Steps and what was compared", lambda: _facts((*sides(diff, _name), *steps(diff)))),
        ("Not known, in one of the two", lambda: _unknown(diff, min(most, _MOST_UNKNOWN))),
    )
    is_shown = (bool(diff.groups), bool(diff.came or diff.went), True, _has_unknown(diff))
    return "\n\n".join(
        f"<details><summary>{title}</summary>\n\n{made()}\n\n</details>"
        for (title, made), shown in zip(parts, is_shown, strict=True)
        if shown
    )


def _holders(diff: Diff, most: int) -> Iterator[str]:
    for title, groups in (("Held now, and not before", diff.came), ("No longer held", diff.went)):
        if groups:
            lines = [_holder(group) for group in groups[:most]]
            yield "\n".join([f"{title}:", "", *lines]) + _more(len(groups) - most)


def _holder(group: HolderGroup) -> str:
    return f"- {format_bytes(group.bytes)}: {holder(group, _name)}"


def _has_unknown(diff: Diff) -> bool:
    return bool(diff.unknown.new or diff.unknown.gone)


def _unknown(diff: Diff, most: int) -> str:
    shown = islice(unknowns(diff, _name, _words), most)
    count = len(diff.unknown.new) + len(diff.unknown.gone)
    return "\n".join(f"- {word}: {text}" for word, text in shown) + _more(count - most)


def _more(count: int) -> str:
    return f"\n\nAnd {count} more, in the JSON diff." if count > 0 else ""
