"""The columns of the table of layers, and which of them fit into a width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphmem.as_text import format_bytes, shorten_dotted
from graphmem.render.rows import LayerRows
from graphmem.report import Layer

GAP = 2
"""The spaces between two columns of tabulate's format ``simple``."""

BYTES_WIDTH = len("1023.99 MiB")
"""The longest that ``format_bytes`` gets."""

NOTHING = "-"
"""The cell of zero bytes, and of what there is not."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the table of layers.

    Attributes:
        header: its title.
        cell: the text of a row.
        adds: its numbers add up, so the row of totals has it too.
        rank: in a narrow table the columns of the highest ranks go; those of 0 stay.
        share: a column of names may be shortened to this share of the table's width.
    """

    header: str
    cell: Callable[[Layer], str]
    adds: bool = False
    rank: int = 0
    share: float | None = None

    @property
    def align(self) -> str:
        """The alignment, as tabulate calls it: names left, numbers right."""
        return "right" if self.share is None else "left"


def size_cell(nbytes: int | None) -> str:
    """Bytes, or ``NOTHING`` of zero and None."""
    return format_bytes(nbytes) if nbytes else NOTHING


COLUMNS = (
    Column("module", lambda row: row.module, share=0.34),
    Column("type", lambda row: row.type or NOTHING, rank=3, share=0.15),
    Column("calls", lambda row: str(row.calls) if row.calls else NOTHING, rank=6),
    Column("params", lambda row: size_cell(row.parameter_bytes), adds=True, rank=1),
    Column("gradient", lambda row: size_cell(row.gradient_bytes), adds=True, rank=4),
    Column("optimizer", lambda row: size_cell(row.optimizer_bytes), adds=True, rank=5),
    Column("output", lambda row: size_cell(row.output_bytes), rank=7),
    Column("saved", lambda row: size_cell(row.saved_bytes), adds=True, rank=2),
    Column("fwd peak", lambda row: size_cell(row.forward_peak_bytes), rank=8),
    Column("bwd peak", lambda row: size_cell(row.backward_peak_bytes), rank=9),
    Column("live at peak", lambda row: size_cell(row.live_at_peak_bytes), adds=True),
)


@dataclass(frozen=True, slots=True)
class Cells:
    """A table of layers as texts; ``total`` is its last row."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    total: tuple[str, ...]


def layer_cells(layers: LayerRows, width: int | None = None) -> Cells:
    """The table of layers in all columns that say something, or in those that fit."""
    columns = filled(layers.rows)
    rows = [tuple(column.cell(row) for column in columns) for row in layers.rows]
    whole = Cells(columns, tuple(rows), _total(columns, layers.total))
    return whole if width is None else _fit(whole, width)


def filled(rows: Sequence[Layer]) -> tuple[Column, ...]:
    """The columns without those that no row has anything for."""
    return tuple(c for c in COLUMNS if c.rank == 0 or any(c.cell(row) != NOTHING for row in rows))


def _total(columns: Sequence[Column], total: Layer) -> tuple[str, ...]:
    """``total`` and the sums; empty where the numbers of a column do not add up."""
    texts = (column.cell(total) if column.adds else "" for column in columns[1:])
    return (total.module, *(format_bytes(0) if text == NOTHING else text for text in texts))


def _fit(cells: Cells, width: int) -> Cells:
    """The columns that fit, and what is left of the width for the names.

    The first column that does not fit is the last that is tried: names need the rest.
    """
    wanted = [max(map(len, texts)) for texts in _by_column(cells)]
    least = [
        size if column.share is None else min(size, int(column.share * width))
        for column, size in zip(cells.columns, wanted, strict=True)
    ]
    ranked = sorted(range(len(least)), key=lambda i: cells.columns[i].rank)
    kept = {i for i in ranked if cells.columns[i].rank == 0}
    left = width + GAP - sum(least[i] + GAP for i in kept)
    for i in ranked[len(kept) :]:
        if least[i] + GAP > left:
            break
        kept.add(i)
        left -= least[i] + GAP
    widths: dict[int, int] = {}
    for i in sorted(kept):
        widths[i] = min(wanted[i], least[i] + left)
        left -= widths[i] - least[i]
    return _take(cells, widths)


def _by_column(cells: Cells) -> list[tuple[str, ...]]:
    headers = tuple(column.header for column in cells.columns)
    return list(zip(headers, *cells.rows, cells.total, strict=True))


def _take(cells: Cells, widths: dict[int, int]) -> Cells:
    """Only the columns that have a width, with their texts shortened to it."""

    def cut(texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(shorten_dotted(texts[i], width) for i, width in widths.items())

    columns = tuple(cells.columns[i] for i in widths)
    return Cells(columns, tuple(map(cut, cells.rows)), cut(cells.total))
