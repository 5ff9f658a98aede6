"""Names that are taken once, and names that Python takes."""

from __future__ import annotations

import keyword
import re
from collections.abc import Container
from functools import lru_cache

_LONGEST = 100
"""Characters of a Python name that is made of a name in a file, which may be of any length."""


class UniqueNames:
    """Gives each name once: a name that is taken gets a number, ``Add_2``.

    Args:
        taken: names that can't be given.
    """

    def __init__(self, taken: Container[str] = ()) -> None:
        self._taken = taken
        self._given: set[str] = set()
        self._counts: dict[str, int] = {}

    def of(self, name: str) -> str:
        """The name itself, or the first one with a number that is free."""
        found = name
        while found in self._given or found in self._taken:
            # Counting on from the last one keeps many equal names linear in time.
            self._counts[name] = self._counts.get(name, 1) + 1
            found = f"{name}_{self._counts[name]}"
        self._given.add(found)
        return found


def identifier(name: str) -> str:
    """A name that Python takes: letters, digits and underscores, and no keyword."""
    return _identifier(name[:_LONGEST])


@lru_cache(maxsize=1 << 16)
def _identifier(name: str) -> str:
    made = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or "value"
    if keyword.iskeyword(made) or made == "self":
        return f"{made}_"
    return f"_{made}" if made[0].isdigit() else made


def module_path(name: str) -> str:
    """A node's name as the path of a module: ``/layer1/conv/Conv`` is ``layer1.conv.Conv``."""
    return ".".join(part for part in name.split("/") if part) or name
