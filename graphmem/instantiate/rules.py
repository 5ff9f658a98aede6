"""The target's rules, asked again at another size.

What a kernel takes for itself, and which choice an override made, was noted at the traced
sizes (``trace.evidence``), in the same order at each. The first is answered anew. The second
decided what was recorded: where it is answered otherwise, the schedule differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from graphmem.devices import Gpu
from graphmem.instantiate.patterns import Pattern, hashable, is_constant, pattern
from graphmem.instantiate.polynomials import DiffersError, Numbers
from graphmem.schedule import Choice, Scratch, Unknown
from graphmem.targets import Layout, Rule, turns
from graphmem.targets import context as contexts
from graphmem.targets.context import Context, Decision
from graphmem.targets.scratch import Call
from graphmem.trace.evidence import Asked


@dataclass(frozen=True, slots=True)
class Answer:
    """What a rule gave: the scratch of each part of a call, and what it told the context.

    ``parts`` are the results that the parts make, as numbers of the call's results; None is
    the result as a whole.
    """

    parts: tuple[int | None, ...]
    scratch: tuple[Scratch, ...]
    choices: Counter[tuple[str, str, str]]
    unknown: tuple[Unknown, ...]


@dataclass(slots=True)
class Question:
    """A scratch rule and its call as patterns; ``operations`` are those that it is asked for."""

    rule: Rule
    args: Pattern
    kwargs: Pattern
    result: Pattern
    gpu: Gpu
    operations: list[int]
    constant: Answer | None = None
    parts: tuple[int | None, ...] = ()

    def at(self, values: list[int]) -> Answer:
        """The rule's answer, of the numbers of a size.

        Raises:
            DiffersError: if the call has other parts there.
        """
        if self.constant is not None:
            return self.constant
        answer = ask(
            self.rule,
            Call(self.args(values), self.kwargs(values), self.result(values), self.gpu),
        )
        if answer.parts != self.parts:
            raise DiffersError("an operator makes its results in another order")
        return answer


def ask(rule: Rule, call: Call) -> Answer:
    """Ask a rule in a context of its own."""
    told = Context(call.gpu)
    with contexts.active(told):
        made = turns(rule(call), call.result)
    if told.begun:
        raise DiffersError("a kernel does something at its first call only")
    parts = tuple(_place(part, call.result) for part, _ in made)
    return Answer(parts, tuple(s for _, s in made), told.choices, tuple(told.unknown))


def _place(part: Any, result: Any) -> int | None:
    """The number of a result among a call's results; None is all of them."""
    if part is result or not isinstance(result, list | tuple) or isinstance(result, Layout):
        return None
    return next(i for i, one in enumerate(result) if one is part)


@dataclass(frozen=True, slots=True)
class Decided:
    """An override's choice: a function of shapes, and what it answered at the traced sizes."""

    decision: Decision
    args: Pattern

    def check(self, values: list[int]) -> None:
        """Ask again.

        Raises:
            DiffersError: if the answer is another.
        """
        args = [_tensor(*arg) if _is_tensor(arg) else arg for arg in self.args(values)]
        with torch.set_grad_enabled(self.decision.grad):
            answer = self.decision.function(*args)
        if answer != self.decision.answer:
            raise DiffersError(f"{answer} and not {self.decision.answer}")


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument, tuple) and len(argument) == 2 and isinstance(argument[0], Layout)


def _tensor(layout: Layout, requires_grad: bool) -> Tensor:
    """A meta tensor with a layout, offset included."""
    elements = layout.nbytes // layout.dtype.itemsize
    storage = torch.empty(elements, dtype=layout.dtype, device="meta")
    return storage.as_strided(layout.size, layout.stride, layout.offset).requires_grad_(
        requires_grad
    )


@dataclass(slots=True)
class Told:
    """All that was told and asked, each distinct thing once, in the order of its first time."""

    questions: list[Question] = field(default_factory=list)
    decisions: list[Decided] = field(default_factory=list)
    _order: dict[Any, int] = field(default_factory=dict)
    _things: list[Question | tuple[str, str, str] | Pattern] = field(default_factory=list)
    _counts: list[int] = field(default_factory=list)

    def at(
        self, values: list[int]
    ) -> tuple[list[tuple[Question, Answer]], tuple[Choice, ...], tuple[Unknown, ...]]:
        """The answers at a size, and the choices and notes of the context.

        Raises:
            DiffersError: if something was decided otherwise there.
        """
        for decided in self.decisions:
            decided.check(values)
        choices: Counter[tuple[str, str, str]] = Counter()
        unknown: dict[Unknown, None] = {}
        answers = []
        for thing, count in zip(self._things, self._counts, strict=True):
            if isinstance(thing, Question):
                answer = thing.at(values)
                answers.append((thing, answer))
                for key, calls in answer.choices.items():
                    choices[key] += calls * count
                unknown.update(dict.fromkeys(answer.unknown))
            elif isinstance(thing, tuple):
                choices[thing] += count
            else:
                unknown[thing(values)] = None
        made = tuple(Choice(*key, calls) for key, calls in choices.items())
        return answers, made, tuple(unknown)

    def add(self, numbers: Numbers, seen: Sequence[Any]) -> None:
        """Add what was told at one moment at all sizes.

        Raises:
            DiffersError: if that was not the same thing.
        """
        first = seen[0]
        if any(type(other) is not type(first) for other in seen):
            raise DiffersError("other things are told")
        if isinstance(first, Asked):
            self._asked(numbers, seen)
        elif isinstance(first, Decision):
            self._decided(numbers, seen)
        elif isinstance(first, Unknown):
            self._once(tuple(seen), lambda: pattern(numbers, seen))
        elif not is_constant(seen):
            raise DiffersError(f"other kernels are chosen: {seen}")
        else:
            self._once(first, lambda: first)

    def _once(self, key: Any, make: Any) -> int:
        """The place of a thing, made at its first time; counts it."""
        place = self._order.get(key)
        if place is None:
            place = self._order[key] = len(self._things)
            self._things.append(make())
            self._counts.append(0)
        self._counts[place] += 1
        return place

    def _asked(self, numbers: Numbers, seen: Sequence[Asked]) -> None:
        first = seen[0]
        if any((o.operation, o.func) != (first.operation, first.func) for o in seen):
            raise DiffersError(f"{first.func} is asked of another operation")
        key = (first.func, first.rule, *(_question_of(o.call) for o in seen))
        place = self._once(key, lambda: self._question(numbers, seen))
        question = self._things[place]
        assert isinstance(question, Question)
        question.operations.append(first.operation)

    def _question(self, numbers: Numbers, seen: Sequence[Asked]) -> Question:
        calls = [one.call for one in seen]
        made = Question(
            seen[0].rule,
            pattern(numbers, [call.args for call in calls]),
            pattern(numbers, [call.kwargs for call in calls]),
            pattern(numbers, [call.result for call in calls]),
            calls[0].gpu,
            [],
        )
        answer = ask(seen[0].rule, calls[0])
        made.parts = answer.parts
        made.constant = answer if is_constant([_question_of(call) for call in calls]) else None
        self.questions.append(made)
        return made

    def _decided(self, numbers: Numbers, seen: Sequence[Decision]) -> None:
        first = seen[0]
        if any(
            (o.function, o.grad, o.answer) != (first.function, first.grad, first.answer)
            for o in seen
        ):
            raise DiffersError(f"{first.function.__name__} is decided otherwise")
        key = (first.function, first.grad, *(hashable(o.args) for o in seen))
        if key in self._order:
            return
        self._order[key] = -1
        args = [o.args for o in seen]
        if not is_constant(args):
            self.decisions.append(Decided(first, pattern(numbers, args)))


def _question_of(call: Call) -> Any:
    return hashable((call.args, call.kwargs, call.result))
