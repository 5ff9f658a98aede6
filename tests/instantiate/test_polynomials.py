"""Numbers as polynomials of a size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmem.instantiate.polynomials import (
    DiffersError,
    Numbers,
    Polynomial,
    TooFewError,
    through,
)


@pytest.mark.parametrize(
    ("sizes", "values", "expected"),
    [
        ((1, 2, 3), (7, 7, 7), Polynomial(7, 0, 0, 1)),
        ((1, 32, 64), (4, 128, 256), Polynomial(0, 4, 0, 1)),  # 4 B an element
        ((2, 4, 8), (1, 2, 4), Polynomial(0, 1, 0, 2)),  # half a batch
        ((1, 2, 3, 4), (1, 4, 9, 16), Polynomial(0, 0, 1, 1)),  # positions by positions
        ((1, 2, 3, 4), (1, 3, 6, 10), Polynomial(0, 1, 1, 2)),  # n (n + 1) / 2 pairs
        ((1, 3, 5), (7, 5, 3), Polynomial(8, -1, 0, 1)),
    ],
)
def test_the_lowest_degree_that_fits_is_taken(
    sizes: tuple[int, ...], values: tuple[int, ...], expected: Polynomial
) -> None:
    assert through(sizes, values) == expected
    assert [expected.at(size) for size in sizes] == list(values)


def test_three_points_do_not_tell_a_parabola() -> None:
    with pytest.raises(TooFewError):
        through((1, 2, 3), (1, 4, 9))


def test_what_is_on_no_parabola_differs() -> None:
    with pytest.raises(DiffersError, match="on no polynomial") as raised:
        through((1, 2, 3, 4), (1, 8, 27, 64))  # cubes
    assert not isinstance(raised.value, TooFewError)


def test_a_broken_number_differs() -> None:
    half = through((2, 4, 8), (1, 2, 4))
    assert half.at(10) == 5
    with pytest.raises(DiffersError, match="no whole number at 5"):
        half.at(5)


@given(
    st.tuples(*[st.integers(-(10**12), 10**12)] * 3),
    st.lists(st.integers(1, 10**5), min_size=4, max_size=6, unique=True),
    st.integers(1, 10**5),
)
def test_every_parabola_is_found(
    coefficients: tuple[int, int, int], sizes: list[int], other: int
) -> None:
    a, b, c = coefficients
    sizes.sort()
    found = through(sizes, [a + b * n + c * n * n for n in sizes])
    assert found.at(other) == a + b * other + c * other * other


def test_equal_numbers_are_kept_once() -> None:
    numbers = Numbers((1, 2, 4))
    assert numbers.place((3, 6, 12)) == numbers.place((3, 6, 12)) == 0
    assert numbers.place((5, 5, 5)) == 1
    assert numbers.at(10) == [30, 5]
