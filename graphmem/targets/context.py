"""The context of a trace: the GPU that its kernels are chosen for, and what was chosen.

Scratch rules get the GPU with their call. Overrides are called by torch's dispatcher with
the operator's arguments alone, so they ask ``current``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

from graphmem.devices import DEFAULT, Gpu
from graphmem.schedule import Choice, Unknown
from graphmem.targets.layout import layouts

T_ = TypeVar("T_")


@dataclass(frozen=True, slots=True)
class Decision:
    """What an override decided by: a function of shapes, its arguments and its answer.

    Tensors among the arguments are ``Layout`` with whether they require a gradient, in a
    pair; ``grad`` is the grad mode.
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    grad: bool
    answer: Any


@dataclass(frozen=True, slots=True)
class Context:
    """One trace's GPU, and what its kernels have to tell.

    ``choices`` counts the choices by operator, kernel and reason; ``unknown`` are notes of
    what a rule could not know; ``begun`` is what kernels do once, at their first call;
    ``kept`` are tensors that they keep for the process; ``log``, where it is asked for, all
    that was told, in order: a choice's key, an ``Unknown`` or a ``Decision``.
    """

    gpu: Gpu = DEFAULT
    choices: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    unknown: dict[Unknown, None] = field(default_factory=dict)
    begun: set[Hashable] = field(default_factory=set)
    kept: dict[Hashable, Any] = field(default_factory=dict)
    log: list[Any] | None = None

    def chose(self, op: str, kernel: str, why: str) -> None:
        """Note a choice, for the report: a call of ``op`` runs ``kernel``, because ``why``."""
        self.choices[op, kernel, why] += 1
        if self.log is not None:
            self.log.append((op, kernel, why))

    def note(self, unknown: Unknown) -> None:
        """Add to what could not be known; the same note twice counts once."""
        self.unknown[unknown] = None
        if self.log is not None:
            self.log.append(unknown)

    def decided(self, function: Callable[..., T_], *args: Any) -> T_:
        """The answer of a function of shapes, noted so that it can be asked at other sizes.

        An override calls it for what its operators depend on.
        """
        answer = function(*args)
        if self.log is not None:
            kept = tuple(map(_without_data, args))
            self.log.append(Decision(function, kept, torch.is_grad_enabled(), answer))
        return answer

    def is_first(self, what: Hashable) -> bool:
        """Whether something that is done once a process is asked for the first time."""
        first = what not in self.begun
        self.begun.add(what)
        return first

    def chosen(self) -> tuple[Choice, ...]:
        """All choices, in the order in which they were first made."""
        return tuple(Choice(*key, calls) for key, calls in self.choices.items())


def _without_data(argument: Any) -> Any:
    if isinstance(argument, Tensor):
        return (layouts(argument), argument.requires_grad)
    return argument


_stack: list[Context] = [Context()]


def current() -> Context:
    """The context of the trace that runs; outside of one a context of the default GPU."""
    return _stack[-1]


@contextmanager
def active(context: Context) -> Iterator[None]:
    """Make a context the current one."""
    _stack.append(context)
    try:
        yield
    finally:
        _stack.pop()
