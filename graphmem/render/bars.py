"""Bars of block characters, an eighth of a character exact."""

from __future__ import annotations

_BLOCKS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█")


def bar(part: int, most: int, width: int) -> str:
    """A bar that is ``width`` characters long for ``most``, and never empty of a part > 0."""
    eighths = max(1, part * width * 8 // most) if part > 0 else 0
    return _BLOCKS[8] * (eighths // 8) + _BLOCKS[eighths % 8]
