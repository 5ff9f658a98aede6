"""The cells of the table of the largest holders, for a terminal of any width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphmem.as_text import format_bytes, format_tensor, shorten, shorten_dotted, shorten_path
from graphmem.render.columns import BYTES_WIDTH, GAP
from graphmem.render.facts import category_name, origin
from graphmem.render.rows import HolderRows
from graphmem.report import Holder

REST = "everything else"

_LEAST_ORIGIN = 44
"""A holder stands on one line where that leaves so much for where it comes from."""

_LEAST_MODULE = 8
_MOST_SOURCE = 40


@dataclass(frozen=True, slots=True)
class HolderCells:
    """The table of holders as texts; ``total`` is its last row."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    total: tuple[str, ...]


def holder_cells(holders: HolderRows, width: int) -> HolderCells:
    """One line a holder where the width allows it, else two."""
    heads = [(kind(holder), format_tensor(holder.dtype, holder.shape)) for holder in holders.rows]
    kinds = max(len(text) for text in (REST, *(what for what, _ in heads)))
    tensors = max((len(tensor) for _, tensor in heads), default=0)
    room = width - BYTES_WIDTH - kinds - tensors - 3 * GAP
    if room >= _LEAST_ORIGIN:
        return _on_one_line(holders, heads, room)
    return _on_two_lines(holders, heads, width - BYTES_WIDTH - GAP)


def kind(holder: Holder) -> str:
    """The category of a holder, and whether it is idle."""
    return category_name(holder.category) + (" (idle)" if holder.idle_bytes else "")


def came_from(holder: Holder, width: int) -> str:
    """The operator, module and source line of a holder, shortened to a width."""
    return shortened_origin(holder.op, holder.module, holder.source, width)


def shortened_origin(op: str | None, module: str, source: str | None, width: int) -> str:
    """An operator, module and source line, shortened to a width.

    The folders of the source go first, then the middle of the module's path.
    """
    if source is not None:
        room = min(_MOST_SOURCE, len(source) - max(0, len(origin(op, module, source)) - width))
        source = shorten_path(source, max(room, len(source.split("/")[-1])))
    over = max(0, len(origin(op, module, source)) - width)
    return shorten(
        origin(op, shorten_dotted(module, max(_LEAST_MODULE, len(module) - over)), source), width
    )


def _on_one_line(holders: HolderRows, heads: Sequence[tuple[str, str]], room: int) -> HolderCells:
    rows = [
        (format_bytes(holder.bytes), *head, came_from(holder, room))
        for holder, head in zip(holders.rows, heads, strict=True)
    ]
    rest = [(format_bytes(holders.rest), REST, "", "")] if holders.rest > 0 else []
    total = (format_bytes(holders.total), "total", "", "")
    return HolderCells(("bytes", "what", "tensor", "from"), (*rows, *rest), total)


def _on_two_lines(holders: HolderRows, heads: Sequence[tuple[str, str]], room: int) -> HolderCells:
    rows: list[tuple[str, ...]] = []
    for holder, head in zip(holders.rows, heads, strict=True):
        rows.append((format_bytes(holder.bytes), shorten("  ".join(head), room)))
        rows.append(("", came_from(holder, room)))
    rest = [(format_bytes(holders.rest), REST)] if holders.rest > 0 else []
    total = (format_bytes(holders.total), "total")
    return HolderCells(("bytes", "what, and from where"), (*rows, *rest), total)
