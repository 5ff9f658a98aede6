"""Python's collector of reference cycles, switched off where what is made is kept."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def off() -> Iterator[None]:
    """No collection inside.

    A collector that is on looks at all that has been made again and again: of an analysis of
    20,000 nodes that is a third of the time, and frees next to nothing.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
