"""What a difficult module or loop is, and the list that all of them are on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn


@dataclass(frozen=True)
class Difficult:
    """A small module that is difficult in one way.

    ``model`` and ``inputs`` are made anew for each use. ``trains`` is False where the
    module has nothing to train. ``options`` are those of ``graphmem.analyze``. ``real`` are the
    modes in which a run on the CPU is to have the same peak, but for what ``kernels`` take for
    themselves there.
    """

    name: str
    model: Callable[[], nn.Module]
    inputs: Callable[[], Any]
    loss: Callable[[Any], Tensor] | None = None
    trains: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    real: tuple[str, ...] = ("training", "inference")
    kernels: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Loop:
    """A user's own loop that is difficult in one way; ``make`` gives the step, made anew."""

    name: str
    make: Callable[[], Callable[[], Any]]
    real: bool = True
    kernels: frozenset[str] = frozenset()
