"""The curve: which sizes it shows, and where another term is the largest."""

from __future__ import annotations

from graphmem.largest.curve import POINTS, Point, Turn, curve


def _point(size: int) -> Point:
    """States of 100, saved 3 each, temporaries of a twentieth of the square."""
    parts = {"optimizer_states": 100, "saved_for_backward": 3 * size, "temporaries": size**2 // 20}
    return Point(size, sum(parts.values()), None, parts)


def test_turns_are_found_to_the_size() -> None:
    assert curve(_point, 1, 100).turns == (
        Turn(34, "optimizer_states", "saved_for_backward"),  # 3 * 34 = 102
        Turn(61, "saved_for_backward", "temporaries"),  # 61**2 // 20 = 186, 3 * 61 = 183
    )


def test_points_are_even_and_have_both_ends() -> None:
    sizes = [point.size for point in curve(_point, 8, 800, 8).points]
    assert (sizes[0], sizes[-1], len(sizes)) == (8, 800, POINTS)
    assert all(size % 8 == 0 for size in sizes)


def test_a_short_curve_has_every_size() -> None:
    assert [point.size for point in curve(_point, 2, 5).points] == [2, 3, 4, 5]
    assert [point.size for point in curve(_point, 3, 3).points] == [3]
