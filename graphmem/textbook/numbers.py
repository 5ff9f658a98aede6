"""Numbers as a user writes them: ``7e9``, ``7B``, ``0.15``, ``20%``."""

from __future__ import annotations

import re
from fractions import Fraction

from graphmem.errors import UsageError
from graphmem.options import parse_bytes

_COUNT = re.compile(r"\s*(\d+(?:\.\d+)?(?:e\+?\d{1,3})?)\s*([kmbt]?)\s*", re.IGNORECASE)
_SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(%?)\s*")
_THOUSANDS = {"": 0, "k": 1, "m": 2, "b": 3, "t": 4}


def parse_count(value: int | float | str, option: str) -> int:
    """The whole number of ``7e9``, ``7B``, ``100M`` or ``6738415616``.

    Raises:
        UsageError: naming the option.
    """
    found = _COUNT.fullmatch(str(value))
    if not found:
        raise UsageError(f"{option}: {value!r} is not a number such as 7e9, 7B or 6738415616")
    exact = Fraction(found[1]) * 1000 ** _THOUSANDS[found[2].lower()]
    if exact.denominator != 1 or exact < 1:
        raise UsageError(f"{option}: {value!r} is not a whole number of 1 or more")
    return int(exact)


def parse_share(value: int | float | str, option: str) -> Fraction:
    """The number of ``0.15``, ``3`` or ``15%``.

    Raises:
        UsageError: naming the option.
    """
    found = _SHARE.fullmatch(str(value))
    if not found:
        raise UsageError(f"{option}: {value!r} is not a number such as 3, 0.15 or 15%")
    return Fraction(found[1]) / (100 if found[2] else 1)


def headroom_bytes(value: int | str, total: int) -> int:
    """What is to stay free beside ``total``: bytes, or a share such as ``20%`` of the GPU.

    Raises:
        UsageError: for anything else, and for 100 % or more.
    """
    if not str(value).strip().endswith("%"):
        return parse_bytes(value, "headroom")
    share = parse_share(value, "headroom")
    if share >= 1:
        raise UsageError(f"headroom: {value} leaves no memory to use")
    return int(total / (1 - share)) - total
