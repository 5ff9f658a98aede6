"""The colours: told apart by all eyes, in both themes."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import pytest

from graphmem.render.palette import DARK, LIGHT, STACK, Theme, channels, contrast, ink
from graphmem.report import BREAKDOWN

Row = tuple[float, float, float]

# Machado, Oliveira and Fernandes, "A Physiologically-based Model for Simulation of Color Vision
# Deficiency" (2009), severity 1.0, on linear RGB.
EYES: dict[str, tuple[Row, Row, Row]] = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "no green": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "no blue": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}

themes = pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])


def _times(rows: tuple[Row, Row, Row], values: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(sum(a * b for a, b in zip(row, values, strict=True)) for row in rows)


def _oklab(colour: tuple[float, ...]) -> tuple[float, ...]:
    """Source: Ottosson, "A perceptual color space for image processing" (2020)."""
    cones = _times(
        (
            (0.4122214708, 0.5363325363, 0.0514459929),
            (0.2119034982, 0.6806995451, 0.1073969566),
            (0.0883024619, 0.2817188376, 0.6299787005),
        ),
        colour,
    )
    return _times(
        (
            (0.2104542553, 0.7936177850, -0.0040720468),
            (1.9779984951, -2.4285922050, 0.4505937099),
            (0.0259040371, 0.7827717662, -0.8086757660),
        ),
        tuple(max(0.0, cone) ** (1 / 3) for cone in cones),
    )


def _difference(one: str, other: str, eyes: str) -> float:
    """The distance in OKLab, in hundredths; about 2 is just noticed side by side."""
    seen = [
        _oklab(tuple(min(1.0, max(0.0, c)) for c in _times(EYES[eyes], channels(colour))))
        for colour in (one, other)
    ]
    return 100 * math.dist(*seen)


def test_every_category_has_its_place_and_colours() -> None:
    assert sorted(STACK) == sorted(BREAKDOWN)
    for theme in (LIGHT, DARK):
        assert theme.categories.keys() == set(STACK)


@themes
def test_shapes_and_texts_stand_out_from_the_background(theme: Theme) -> None:
    # WCAG 2.2: 3 for graphics (1.4.11), 4.5 for texts (1.4.3).
    for colour in theme.categories.values():
        assert contrast(colour, theme.background) >= 3
        assert contrast(ink(colour), colour) >= 4.5
    for colour in (theme.text, theme.faint, theme.accent):
        assert contrast(colour, theme.background) >= 4.5
    assert contrast(theme.faint, theme.line) >= 3  # the names of phases on their bands


@themes
@pytest.mark.parametrize("eyes", EYES)
def test_categories_differ_to_all_eyes(eyes: str, theme: Theme) -> None:
    colours = theme.categories
    for one, other in combinations(STACK, 2):
        assert _difference(colours[one], colours[other], eyes) >= 7, (one, other)
    for one, other in pairwise(STACK):  # what touches
        assert _difference(colours[one], colours[other], eyes) >= 12, (one, other)


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast("#000000", "#ffffff") == 21
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
