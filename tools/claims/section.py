"""A claim's section of the page: what is said, whether it holds, and the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import fill

_WIDTH = 100


@dataclass(frozen=True, slots=True)
class Row:
    """A simulated case: its name, its numbers as text, and whether the claim holds for it.

    ``holds`` is None where the row is there for comparison alone.
    """

    name: str
    cells: tuple[str, ...]
    holds: bool | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """A claim. ``test`` says when it counts as held, ``text`` what the numbers mean."""

    claim: str
    test: str
    text: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def lines(self) -> Iterator[str]:
        """The section in markdown."""
        yield from (
            f"## {self.claim}",
            "",
            fill(f"**{verdict(self.rows)}** {self.test}", _WIDTH),
            "",
        )
        yield "| | " + " | ".join((*self.columns, "holds")) + " |"
        yield "|---" + "|--:" * len(self.columns) + "|---|"
        for row in self.rows:
            yield "| " + " | ".join((row.name, *row.cells, _answer(row.holds))) + " |"
        yield from ("", fill(self.text, _WIDTH, break_on_hyphens=False), "")


def verdict(rows: Sequence[Row]) -> str:
    """In how many of the cases the claim holds."""
    asked = [row.holds for row in rows if row.holds is not None]
    if all(asked):
        return "Holds."
    return f"Holds in {sum(asked)} of {len(asked)} cases." if any(asked) else "Does not hold."


def gb(nbytes: int) -> str:
    """GB of 10^9 bytes, as textbooks count."""
    return f"{nbytes / 1e9:,.2f}"


def mb(nbytes: int) -> str:
    """MB of 10^6 bytes."""
    return f"{nbytes / 1e6:,.1f}"


def percent(part: int, whole: int) -> str:
    """A part of a whole."""
    return f"{100 * part / whole:.1f} %"


def times(after: int, before: int) -> str:
    """How many times as large."""
    return f"{after / before:.2f}"


def _answer(holds: bool | None) -> str:
    return "" if holds is None else "yes" if holds else "no"
