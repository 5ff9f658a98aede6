"""Longest common subsequences, beside the table that defines them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from graphmem.measure.align import common


def _length(a: list[int | None], b: list[int | None]) -> int:
    """By the definition, row by row."""
    above = [0] * (len(b) + 1)
    for left in a:
        row = [0]
        for j, right in enumerate(b):
            same = left is not None and left == right
            row.append(above[j] + 1 if same else max(above[j + 1], row[j]))
        above = row
    return above[-1]


_SEQUENCES = st.lists(st.sampled_from([None, 1, 2, 3, 4]), max_size=40)


@given(_SEQUENCES, _SEQUENCES)
def test_pairs_are_a_longest_common_subsequence(a: list[int | None], b: list[int | None]) -> None:
    pairs = common(a, b)
    assert all(a[i] is not None and a[i] == b[j] for i, j in pairs)
    for (i, j), (k, m) in pairwise(pairs):
        assert i < k
        assert j < m
    assert len(pairs) == _length(a, b)


def test_long_sequences_cross_the_rows_that_are_kept() -> None:
    a: list[int | None] = [i * i % 7 for i in range(500)]
    b: list[int | None] = [i * i % 11 for i in range(450)]
    pairs = common(a, b)
    assert len(pairs) == _length(a, b)
    assert all(a[i] == b[j] for i, j in pairs)


def test_what_both_begin_and_end_with_is_paired_where_it_stands() -> None:
    assert common("abcxde", "abcyyde") == [(0, 0), (1, 1), (2, 2), (4, 5), (5, 6)]
    assert common("aa", "a") == [(0, 0)]
    assert common("", "a") == []


def test_none_is_equal_to_nothing() -> None:
    assert common([None, 1, None], [None, 1, None]) == [(1, 1)]
