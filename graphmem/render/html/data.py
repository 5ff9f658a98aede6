"""A history as compact JSON values, for the page to draw: columns of integers.

Texts are indices into ``strings``, -1 for None. Labels of operations are ``[value, count,
...]`` in runs of the same; bytes of operations are runs of differences to the operation
before. The page's ``data.js`` reads it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any

from graphmem.as_text import format_tensor
from graphmem.render.palette import STACK
from graphmem.report.history import History, Memory, Piece

_FREE = -2
_SCRATCH = -1
"""What stands in the place of a piece's tensor where it has none."""


def history_data(history: History) -> dict[str, Any]:
    """Everything of a history that the page shows.

    Returns:
        ``{strings, categories, peak, moments, held, tensors, memory}``: the columns of the
        operations, the bytes of each category (in the order of ``categories``), the columns of
        the tensors, and the segments at the peak with their pieces (None if there are none).
    """
    texts = _Texts()
    values = {
        "categories": list(STACK),
        "peak": history.peak_index,
        "moments": _moments(history, texts),
        "held": [_runs(_differences(history.categories[name])) for name in STACK],
        "tensors": _tensors(history, texts),
        "memory": None if history.memory is None else _memory(history.memory),
    }
    return {"strings": texts.all, **values}


class _Texts:
    """Each text once."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}

    def __call__(self, text: str | None) -> int:
        return -1 if text is None else self._places.setdefault(text, len(self._places))

    @property
    def all(self) -> list[str]:
        return list(self._places)


def _moments(history: History, texts: _Texts) -> dict[str, Any]:
    moments = history.moments
    has_reserved = bool(moments) and moments[0].reserved_bytes is not None
    reserved = [m.reserved_bytes or 0 for m in moments] if has_reserved else []
    return {
        "count": len(moments),
        "step": _runs(m.step for m in moments),
        "phase": _runs(texts(m.phase) for m in moments),
        "op": _runs(texts(m.op) for m in moments),
        "module": _runs(texts(m.module) for m in moments),
        "source": _runs(texts(m.source) for m in moments),
        "scratch": _runs(m.scratch_bytes for m in moments),
        "reserved": _runs(_differences(reserved)) if has_reserved else None,
    }


def _tensors(history: History, texts: _Texts) -> dict[str, list[int]]:
    tensors = history.tensors
    return {
        "bytes": [t.bytes for t in tensors],
        "requested": [t.requested_bytes for t in tensors],
        "category": [STACK.index(t.category) for t in tensors],
        "tensor": [texts(format_tensor(t.dtype, t.shape)) for t in tensors],
        "op": [texts(t.op) for t in tensors],
        "module": [texts(t.module) for t in tensors],
        "source": [texts(t.source) for t in tensors],
        "name": [texts(t.name) for t in tensors],
        "born": [t.born for t in tensors],
        "used": [t.last_use for t in tensors],
        "freed": [-1 if t.freed is None else t.freed for t in tensors],
    }


def _memory(memory: Memory) -> dict[str, list[int]]:
    segments = memory.segments
    pieces = [piece for segment in segments for piece in segment.pieces]
    return {
        "address": [s.address for s in segments],
        "bytes": [s.bytes for s in segments],
        "stream": [s.stream for s in segments],
        "small": [int(s.is_small) for s in segments],
        "expandable": [int(s.is_expandable) for s in segments],
        "count": [len(s.pieces) for s in segments],
        "piece": [p.bytes for p in pieces],
        "tensor": [_held_by(p) for p in pieces],
    }


def _held_by(piece: Piece) -> int:
    if piece.tensor is not None:
        return piece.tensor
    return _FREE if piece.is_free else _SCRATCH


def _differences(values: Sequence[int]) -> list[int]:
    return [*values[:1], *(later - earlier for earlier, later in pairwise(values))]


def _runs(values: Iterable[int]) -> list[int]:
    """``[7, 7, 7, 2]`` as ``[7, 3, 2, 1]``."""
    return [number for value, same in groupby(values) for number in (value, sum(1 for _ in same))]
