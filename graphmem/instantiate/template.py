"""Templates: a run's schedule as a function of one size.

1. The records at several sizes must be the same but for numbers: the same operations over the
   same storages, with the same names, lifetimes and source lines.
2. Every number that differs (bytes, shapes, arguments of operators) is a polynomial of the size
   through all records.
3. At another size the numbers follow from those, and must be whole ones; what a kernel takes
   for itself, and which kernels are chosen, from the target's rules, asked again. Results that
   the target's rules lay out are laid out again, and must be what the numbers say; a number of
   theirs that is no polynomial, such as one that is rounded up, is what the rule gives.

Not covered: code of the model's own, or a composition inside of torch, that takes another
branch at a size between two recorded ones and not at the recorded ones themselves
(``if batch % 8 == 0``), and whose numbers are nevertheless whole there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter

from graphmem.devices import Gpu
from graphmem.instantiate.patterns import Pattern, is_constant, pattern
from graphmem.instantiate.polynomials import DiffersError, Numbers
from graphmem.instantiate.results import laid
from graphmem.instantiate.rules import Answer, Question, Told
from graphmem.options import Target
from graphmem.schedule import Operation, Schedule, Storage, Unknown
from graphmem.targets import context, result_rules
from graphmem.trace.evidence import Evidence


@dataclass(frozen=True, slots=True)
class Recorded:
    """A traced run: its schedule and the evidence, whose kernels, and of which GPU.

    ``evidence`` is None where it does not tell all (see ``trace.run.Trace``).
    """

    schedule: Schedule
    evidence: Evidence | None
    target: Target
    gpu: Gpu


class Template:
    """The schedules of a run at all sizes.

    Args:
        sizes: three or more, in ascending order.
        records: the run at each of them.

    Raises:
        DiffersError: if the records are not the same but for numbers, or a number is no
            polynomial.
    """

    def __init__(self, sizes: Sequence[int], records: Sequence[Recorded]) -> None:
        evidence = [one.evidence for one in records if one.evidence is not None]
        if len(evidence) != len(records):
            raise DiffersError("a kernel does something at its first call only")
        self._first = records[0]
        self._numbers = Numbers(sizes)
        schedules = [one.schedule for one in records]
        self._operations = _operations(schedules)
        rules = result_rules(self._first.target)
        self._laid = laid(self._numbers, [one.laid for one in evidence], rules)  # numbers first
        self._storages = _storages(self._numbers, schedules)
        self._others = _others(self._numbers, schedules)
        self._told = _told(self._numbers, evidence)
        self._notes = _notes(self._numbers, schedules, evidence)
        self._rest = self._notes_after(sizes, schedules, evidence)
        for size, schedule in zip(sizes, schedules, strict=True):
            if self.at(size) != schedule:
                raise DiffersError(f"the schedule of {size} is not what its numbers give")

    def at(self, size: int) -> Schedule:
        """The schedule at a size, as a trace there would record it.

        Raises:
            DiffersError: if it is not the records' with other numbers.
        """
        with context.active(context.Context(self._first.gpu)):
            values = self._numbers.at(size)
            for one in self._laid:
                one.check(values)
        answers, choices, told = self._told.at(values)
        before = [note(values) for note in self._notes]
        return Schedule(
            operations=self._with_scratch(answers),
            storages=self._with_sizes(values),
            unknown=tuple(dict.fromkeys((*before, *told, *self._rest))),
            choices=choices,
            **{name: part(values) for name, part in self._others.items()},
        )

    def _with_scratch(self, answers: list[tuple[Question, Answer]]) -> tuple[Operation, ...]:
        operations = list(self._operations)
        for question, answer in answers:
            if question.constant is not None:
                continue
            for first in question.operations:
                for index, scratch in enumerate(answer.scratch, first):
                    if operations[index].scratch != scratch:
                        operations[index] = replace(operations[index], scratch=scratch)
        return tuple(operations)

    def _with_sizes(self, values: list[int]) -> tuple[Storage, ...]:
        storages = list(self._first.schedule.storages)
        for index, sized in self._storages:
            nbytes, shape = sized(values)
            if nbytes < 0 or min(shape, default=0) < 0:
                raise DiffersError(f"storage {index} would have {nbytes} bytes")
            storages[index] = _sized(storages[index], nbytes, shape)
        return tuple(storages)

    def _notes_after(
        self, sizes: Sequence[int], schedules: Sequence[Schedule], evidence: Sequence[Evidence]
    ) -> tuple[Unknown, ...]:
        """The notes behind those of the context, which must be the same at all sizes."""
        rests = []
        for size, schedule, one in zip(sizes, schedules, evidence, strict=True):
            with context.active(context.Context(self._first.gpu)):
                told = self._told.at(self._numbers.at(size))[2]
            before = schedule.unknown[: one.noted]
            added = sum(note not in before for note in told)
            rests.append(schedule.unknown[len(before) + added :])
        if not is_constant(rests):
            raise DiffersError("other things are unknown")
        return rests[0]


def _operations(schedules: Sequence[Schedule]) -> tuple[Operation, ...]:
    """The operations, which may differ in scratch alone."""
    first = schedules[0].operations
    for other in schedules[1:]:
        if len(other.operations) != len(first):
            raise DiffersError("another number of operations")
        for one, two in zip(first, other.operations, strict=True):
            if one != two and _but_scratch(one) != _but_scratch(two):
                raise DiffersError(f"operation {one.index} is another: {one.target}, {two.target}")
    return first


_but_scratch = attrgetter(*(field.name for field in fields(Operation) if field.name != "scratch"))
_STORAGE = [field.name for field in fields(Storage) if field.name not in ("nbytes", "shape")]
_SPECIAL = {"operations", "storages", "unknown", "choices"}


def _storages(numbers: Numbers, schedules: Sequence[Schedule]) -> list[tuple[int, Pattern]]:
    """The storages that differ, by number, and the patterns of their bytes and shapes."""
    found = []
    if len({len(schedule.storages) for schedule in schedules}) != 1:
        raise DiffersError("another number of storages")
    for index, seen in enumerate(zip(*(s.storages for s in schedules), strict=True)):
        if is_constant(seen):
            continue
        if not is_constant(list(map(_but_size, seen))):
            raise DiffersError(f"storage {index} is another")
        found.append((index, pattern(numbers, [(one.nbytes, one.shape) for one in seen])))
    return found


def _sized(storage: Storage, nbytes: int, shape: tuple[int, ...]) -> Storage:
    """``dataclasses.replace``, in a third of its time."""
    rest = _but_size(storage)
    return Storage(rest[0], nbytes, rest[1], shape, *rest[2:])


_but_size = attrgetter(*_STORAGE)


def _others(numbers: Numbers, schedules: Sequence[Schedule]) -> dict[str, Pattern]:
    """All else that a schedule has."""
    names = [field.name for field in fields(Schedule) if field.name not in _SPECIAL]
    return {name: pattern(numbers, [getattr(s, name) for s in schedules]) for name in names}


def _told(numbers: Numbers, evidence: Sequence[Evidence]) -> Told:
    told = Told()
    if len({len(one.told) for one in evidence}) != 1:
        raise DiffersError("another number of things is told")
    for seen in zip(*(one.told for one in evidence), strict=True):
        told.add(numbers, seen)
    return told


def _notes(
    numbers: Numbers, schedules: Sequence[Schedule], evidence: Sequence[Evidence]
) -> list[Pattern]:
    """The notes that stand before those of the context."""
    notes = [s.unknown[: one.noted] for s, one in zip(schedules, evidence, strict=True)]
    if len({len(one) for one in notes}) != 1:
        raise DiffersError("another number of things is unknown")
    return [pattern(numbers, seen) for seen in zip(*notes, strict=True)]
