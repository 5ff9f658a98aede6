"""Longest common subsequences of two long sequences, such as the sizes of allocations.

Definition. ``L(i, j)`` is the length of the longest common subsequence of ``a[:i]`` and
``b[:j]``. Row ``i`` is one integer: its bit ``j`` is 0 where ``L(i, j + 1) = L(i, j) + 1``.
Each row follows from the one above by one addition, so that a row costs ``len(b) / 64``
machine words of work; only every 128th is kept, and the others are made again on the way
back.

Source: Crochemore, Iliopoulos, Pinzon, Reid: A fast and practical bit-vector algorithm for
the longest common subsequence problem (2001); the way back is read off the zeros' movement:
a zero that stands in the row above too was not made by this row's element.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

_KEPT = 128

Pairs = list[tuple[int, int]]
"""Indices into both sequences, rising."""


def common(a: Sequence[Hashable | None], b: Sequence[Hashable | None]) -> Pairs:
    """One of the longest common subsequences; None is equal to nothing."""
    start = _common_prefix(a, b)
    end = _common_prefix(a[start:][::-1], b[start:][::-1])
    inner = _common(a[start : len(a) - end], b[start : len(b) - end])
    return [
        *((i, i) for i in range(start)),
        *((start + i, start + j) for i, j in inner),
        *((len(a) - i, len(b) - i) for i in range(end, 0, -1)),
    ]


def _common_prefix(a: Sequence[Hashable | None], b: Sequence[Hashable | None]) -> int:
    for i, (left, right) in enumerate(zip(a, b, strict=False)):
        if left is None or left != right:
            return i
    return min(len(a), len(b))


def _common(a: Sequence[Hashable | None], b: Sequence[Hashable | None]) -> Pairs:
    places = _places(b, set(a))
    row = full = (1 << len(b)) - 1
    kept = [row]
    for i, item in enumerate(a, start=1):
        row = _next(row, places.get(item, 0), full)
        if i % _KEPT == 0:
            kept.append(row)
    return _back(a, len(b), kept, places)


def _places(
    b: Sequence[Hashable | None], wanted: set[Hashable | None]
) -> dict[Hashable | None, int]:
    """For each element that is wanted, the bits of the places where it stands."""
    bits: dict[Hashable | None, bytearray] = {}
    for j, item in enumerate(b):
        if item is not None and item in wanted:
            bits.setdefault(item, bytearray(len(b) // 8 + 1))[j >> 3] |= 1 << (j & 7)
    return {item: int.from_bytes(text, "little") for item, text in bits.items()}


def _next(row: int, places: int, full: int) -> int:
    hits = row & places
    return ((row + hits) | (row - hits)) & full


def _back(
    a: Sequence[Hashable | None], width: int, kept: list[int], places: dict[Hashable | None, int]
) -> Pairs:
    pairs: Pairs = []
    full, j = (1 << width) - 1, width
    for number in range(len(kept) - 1, -1, -1):
        first = number * _KEPT
        rows = [kept[number]]
        for item in a[first : first + _KEPT]:
            rows.append(_next(rows[-1], places.get(item, 0), full))
        i = len(rows) - 1
        while i and j:
            if rows[i] >> (j - 1) & 1:
                j -= 1
            elif rows[i - 1] >> (j - 1) & 1:
                pairs.append((first + i - 1, j - 1))
                i, j = i - 1, j - 1
            else:
                i -= 1
    return pairs[::-1]
