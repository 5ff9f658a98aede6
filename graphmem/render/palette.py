"""The colours of pictures: one for each category of a breakdown, in a light and a dark theme.

They were drawn at random and kept where the nearest two differ most, to all eyes: with the
simulations of Machado, Oliveira and Fernandes (2009) for people without one kind of cones.
``tests/render/test_palette.py`` measures that, and their contrast to the background.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Theme:
    """The background of a picture, its texts and lines, and the colour of each category."""

    background: str
    text: str
    faint: str
    line: str
    accent: str
    categories: dict[str, str]


STACK = (
    "parameters",
    "buffers",
    "optimizer_states",
    "inputs",
    "gradients",
    "saved_for_backward",
    "outputs",
    "temporaries",
    "workspaces",
    "allocator_slack",
)
"""The categories from the bottom of a stack upwards: what stays is below what comes and goes."""

LIGHT = Theme(
    background="#ffffff",
    text="#1b1f24",
    faint="#5b6470",
    line="#d5dae1",
    accent="#b4142b",
    categories={
        "parameters": "#054f97",
        "buffers": "#0081a0",
        "optimizer_states": "#a06ff9",
        "inputs": "#2c4b1e",
        "gradients": "#a16d25",
        "saved_for_backward": "#19a48d",
        "outputs": "#952c66",
        "temporaries": "#d2755e",
        "workspaces": "#6b5b18",
        "allocator_slack": "#332c2f",
    },
)

DARK = Theme(
    background="#14171c",
    text="#e8ebef",
    faint="#a0a9b5",
    line="#363d47",
    accent="#ff7b8a",
    categories={
        "parameters": "#4e71ea",
        "buffers": "#6ce0f6",
        "optimizer_states": "#b590ff",
        "inputs": "#bbf7a9",
        "gradients": "#d58d3f",
        "saved_for_backward": "#3fc1bb",
        "outputs": "#945484",
        "temporaries": "#c42f0a",
        "workspaces": "#cec700",
        "allocator_slack": "#908687",
    },
)

_INKS = ("#ffffff", "#000000")


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21.

    Source: WCAG 2.2, "contrast ratio" and "relative luminance".
    """
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def ink(colour: str) -> str:
    """Black or white, whichever is easier to read on a colour."""
    return max(_INKS, key=lambda text: contrast(text, colour))


def channels(colour: str) -> tuple[float, float, float]:
    """The linear red, green and blue of ``#rrggbb``, from 0 to 1."""
    red, green, blue = (_linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return red, green, blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def _luminance(colour: str) -> float:
    red, green, blue = channels(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
