"""What a model may take: bytes, a GPU, and how much more than it took before."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from graphmem.errors import UsageError
from graphmem.options import parse_bytes


@dataclass(frozen=True, slots=True)
class Growth:
    """How much a peak may grow: a share of what it was, or bytes."""

    text: str
    share: Fraction | None
    nbytes: int

    def allowed(self, before: int) -> int:
        """The bytes that a peak of ``before`` may grow by."""
        return self.nbytes if self.share is None else int(before * self.share)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one model; None where there is none.

    ``budget`` is bytes for PyTorch's allocator, ``device`` the name of a GPU that the run is to
    fit on.
    """

    budget: int | None = None
    device: str | None = None
    growth: Growth | None = None


_SHARE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")


def parse_growth(value: str | int, option: str) -> Growth:
    """The growth of ``"2%"``, ``"100MiB"`` or a number of bytes.

    Raises:
        UsageError: naming the option, for anything else.
    """
    found = _SHARE.fullmatch(str(value))
    if found is not None:
        return Growth(str(value).strip(), Fraction(found[1]) / 100, 0)
    try:
        return Growth(str(value), None, parse_bytes(value, option))
    except UsageError:
        raise UsageError(
            f"{option}: {value!r} is neither a share such as 2% nor a size such as 100MiB"
        ) from None
