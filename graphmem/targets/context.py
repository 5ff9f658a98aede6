"""The context of a trace: the GPU that its kernels are chosen for, and what was chosen.

Scratch rules get the GPU with their call. Overrides are called by torch's dispatcher with
the operator's arguments alone, so they ask ``current``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from graphmem.devices import DEFAULT, Gpu
from graphmem.schedule import Choice, Unknown


@dataclass(frozen=True, slots=True)
class Context:
    """One trace's GPU, and what its kernels have to tell.

    ``choices`` counts the choices by operator, kernel and reason; ``unknown`` are notes of
    what a rule could not know; ``begun`` is what kernels do once, at their first call;
    ``kept`` are tensors that they keep for the process.
    """

    gpu: Gpu = DEFAULT
    choices: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    unknown: dict[Unknown, None] = field(default_factory=dict)
    begun: set[Hashable] = field(default_factory=set)
    kept: dict[Hashable, Any] = field(default_factory=dict)

    def chose(self, op: str, kernel: str, why: str) -> None:
        """Note a choice, for the report: a call of ``op`` runs ``kernel``, because ``why``."""
        self.choices[op, kernel, why] += 1

    def note(self, unknown: Unknown) -> None:
        """Add to what could not be known; the same note twice counts once."""
        self.unknown[unknown] = None

    def is_first(self, what: Hashable) -> bool:
        """Whether something that is done once a process is asked for the first time."""
        first = what not in self.begun
        self.begun.add(what)
        return first

    def chosen(self) -> tuple[Choice, ...]:
        """All choices, in the order in which they were first made."""
        return tuple(Choice(*key, calls) for key, calls in self.choices.items())


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
