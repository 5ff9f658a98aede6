"""Tables between two rules and wrapped sentences, for a terminal of any width."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence

from graphmem.render.columns import GAP

_LEAST_WIDTH = 40
_MOST_WIDTH = 160

_TOGETHER = re.compile(r"(?<=\d) (?=[KMGTP]?i?B\b)|(?<=\d,) (?=\d)")
"""The spaces within ``1.50 GiB`` and ``f32[8, 1024]``, where no line is to be broken."""


def screen_width(width: int | None = None) -> int:
    """Characters of a line, 40 or more; of None those of the terminal, at most 160."""
    if width is None:
        width = min(shutil.get_terminal_size().columns, _MOST_WIDTH)
    return max(width, _LEAST_WIDTH)


def grid(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    total: Sequence[str],
    align: Sequence[str],
) -> list[str]:
    """The lines of a table, with a rule above its total; ``align`` is left or right."""
    lines = (headers, *rows, total)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    above, *inner, below = (_line(cells, widths, align) for cells in lines)
    rule = _line(["─" * width for width in widths], widths, align)
    return [above, rule, *inner, rule, below]


def _line(cells: Sequence[str], widths: Sequence[int], align: Sequence[str]) -> str:
    texts = (
        text.rjust(width) if side == "right" else text.ljust(width)
        for text, width, side in zip(cells, widths, align, strict=True)
    )
    return (" " * GAP).join(texts).rstrip()


def wrap(text: str, width: int, first: str = "", later: str = "") -> list[str]:
    """The text in lines of at most ``width``, numbers and their units kept together."""
    lines = textwrap.wrap(
        _TOGETHER.sub("\N{NO-BREAK SPACE}", text),
        width,
        initial_indent=first,
        subsequent_indent=later,
        break_on_hyphens=False,
    )
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
