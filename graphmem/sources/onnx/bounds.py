"""Sizes that depend on data: an analysis takes an upper bound, and says so.

Outside of an analysis rules compute with the values. In one, the trace refuses values that
it does not know with ``ValueNeededError``; a rule that has a bound gives it in their place:

    keep = bounds.or_bound(lambda: mask.nonzero(), lambda: all_of(mask), note)

While a rule runs (``asking``) a trace assumes nothing of its own, as it does for a model's code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from torch import Tensor

from graphmem.errors import ValueNeededError
from graphmem.schedule import Unknown
from graphmem.sources.onnx.registry import Call

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one analysis assumes: loops run ``trip_count`` times where nothing says how often.

    ``notes`` are the bounds that were taken, each once, in order.
    """

    trip_count: int | None = None
    notes: dict[Unknown, None] = field(default_factory=dict)

    def note(self, call: Call, what: str, assumed: str) -> None:
        """Add a note of what is not known at a node, and what is taken in its place."""
        self.notes[Unknown(what, f"node {call.node.name} ({call.node.kind})", assumed)] = None


_stack: list[Bounds] = []
_asking = 0


def current() -> Bounds | None:
    """The bounds of the analysis that runs; None outside of one."""
    return _stack[-1] if _stack else None


@contextmanager
def active(bounds: Bounds) -> Iterator[None]:
    """Take bounds in place of values that are not known, until the block ends."""
    _stack.append(bounds)
    try:
        yield
    finally:
        _stack.pop()


@contextmanager
def asking() -> Iterator[None]:
    """A rule runs inside: values that are not known are refused."""
    global _asking
    _asking += 1
    try:
        yield
    finally:
        _asking -= 1


def is_asking() -> bool:
    """Whether a rule runs."""
    return _asking > 0


def or_bound(
    exact: Callable[[], T], bound: Callable[[], T], call: Call, *, what: str, assumed: str
) -> T:
    """What ``exact`` gives; in an analysis without the values it needs, ``bound``, noted.

    Raises:
        ValueNeededError: no analysis is active that takes bounds.
    """
    try:
        return exact()
    except ValueNeededError:
        bounds = current()
        if bounds is None:
            raise
    bounds.note(call, what, assumed)
    return bound()


def is_known(tensor: Tensor) -> bool:
    """Whether a tensor's values can be asked for; asks for none of them."""
    try:
        tensor.detach().unsqueeze(-1)[..., :0].tolist()
    except ValueNeededError:
        return False
    return True
