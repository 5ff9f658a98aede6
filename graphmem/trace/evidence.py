"""Evidence: what a trace asked of rules, so that they can be asked again at other sizes.

A schedule holds the answers of the target's rules; this holds the questions: every scratch
rule with its call, every layout of a result with what it followed from, and what overrides
told the context, all without tensors, so that nothing lives longer for being noted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch._ops import OpOverload

from graphmem.targets import Bytes, Rule, layouts
from graphmem.targets import Call as ScratchCall


@dataclass(frozen=True, slots=True)
class Asked:
    """A scratch rule that was asked, and the first of the operations that the call became."""

    operation: int
    func: OpOverload
    rule: Rule
    call: ScratchCall


@dataclass(slots=True)
class Evidence:
    """One trace's evidence.

    ``told`` has, in order, ``Asked`` and what overrides told (see ``Context.log``);
    ``laid`` the keys of ``shapes.Shapes.of`` and the layouts that it gave, of every call.
    ``noted`` counts the schedule's notes that come before those of the context, once it ended.
    """

    told: list[Any] = field(default_factory=list)
    laid: list[tuple[Any, Any]] = field(default_factory=list)
    noted: int | None = None

    def end(self, noted: int) -> None:
        """The schedule is made now: what runs later, such as a step more, is no part of it."""
        if self.noted is None:
            self.noted = noted
            self.told, self.laid = list(self.told), list(self.laid)

    def ask(self, operation: int, func: OpOverload, rule: Rule, call: ScratchCall) -> Bytes:
        """A rule's answer; what it tells the context follows from the question, and is not kept."""
        mark = len(self.told)
        given = rule(call)
        del self.told[mark:]
        kwargs = {name: layouts(value) for name, value in call.kwargs.items()}
        kept = ScratchCall(call.args, kwargs, call.result, call.gpu)
        self.told.append(Asked(operation, func, rule, kept))
        return given
