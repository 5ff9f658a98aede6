"""Tables between two rules and wrapped sentences, for a terminal of any width."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence

from tabulate import SEPARATING_LINE, DataRow, Line, TableFormat, tabulate

from graphmem.render.columns import GAP

_LEAST_WIDTH = 40
_MOST_WIDTH = 160

_FORMAT = TableFormat(
    lineabove=None,
    linebelowheader=Line("", "─", " " * GAP, ""),
    linebetweenrows=None,
    linebelow=None,
    headerrow=DataRow("", " " * GAP, ""),
    datarow=DataRow("", " " * GAP, ""),
    padding=0,
    with_header_hide=None,
)
"""Columns and two rules. The headers are a row: tabulate would widen their columns by two."""

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
    """The lines of a table, with a rule above its total."""
    text: str = tabulate(
        [headers, SEPARATING_LINE, *rows, SEPARATING_LINE, total],
        tablefmt=_FORMAT,
        colalign=align,
        disable_numparse=True,
    )
    return [line.rstrip() for line in text.split("\n")]


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
