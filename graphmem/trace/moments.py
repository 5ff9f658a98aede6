"""Moments: where in a run an operator comes.

In forward and in the optimizer that is what the code under trace says, in backward what the
autograd node that runs does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import _make_grads

from graphmem.schedule import Phase
from graphmem.trace.place import Place, Places


@dataclass(frozen=True, slots=True)
class Moment:
    """Where in a run an operator comes.

    ``node`` is the autograd node that runs, ``number`` its sequence number; ``forward``
    says that the operator computes a forward, if only again in a checkpoint, which then is of
    the module that ``recomputes`` names.
    """

    place: Place
    phase: Phase
    node: torch.autograd.graph.Node | None
    number: int | None
    forward: bool
    recomputes: str | None = None


class Moments:
    """Tells the moment of each operator.

    ``step`` is the number of the running step, ``optimizing`` says that an optimizer runs.
    ``generated`` and ``fused`` are as in ``Storage``, of what the running operator makes.
    """

    def __init__(self) -> None:
        self.places = Places()
        self.step = 1
        self.optimizing = False
        self.generated = self.fused = False
        self._place: Place | None = None

    @contextmanager
    def at(self, place: Place, *, generated: bool, fused: bool) -> Iterator[None]:
        """Operators inside are those of a compiled graph's node, which came from ``place``.

        Args:
            generated: as in ``Storage``, of the results.
            fused: as in ``Storage``, of the results.
        """
        before = self._place, self.generated, self.fused
        self._place, self.generated, self.fused = place, generated, fused
        try:
            yield
        finally:
            self._place, self.generated, self.fused = before

    @contextmanager
    def in_optimizer(self) -> Iterator[None]:
        """Operators inside are the optimizer's."""
        before, self.optimizing = self.optimizing, True
        try:
            yield
        finally:
            self.optimizing = before

    def now(self, operator: str) -> Moment:
        """Where in the run an operator of that name comes, which is being dispatched."""
        optimizing = self.optimizing and not self.places.stack  # LBFGS runs the model
        if optimizing or torch._C._current_graph_task_id() == -1:
            place = self._place or self.places.forward()
            if operator == "aten.ones_like" and _called_by(_make_grads):
                return Moment(place, Phase.BACKWARD, None, None, forward=False)
            phase = Phase.OPTIMIZER if optimizing else Phase.FORWARD
            return Moment(place, phase, None, None, forward=True)
        node = torch._C._current_autograd_node()
        number = None if node is None else node._sequence_nr()
        stack = self.places.stack
        recomputes = stack[0] if stack else None
        place = self._place or self.places.backward(node)
        return Moment(place, Phase.BACKWARD, node, number, bool(stack), recomputes)


def _called_by(function: Callable[..., Any]) -> bool:
    """Whether a Python function called the operator that is being dispatched."""
    return sys._getframe(4).f_code is function.__code__
