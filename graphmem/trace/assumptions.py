"""What an analysis takes for values that nobody has, and its notes of them.

A value that follows from known ones is computed, and an example value that the user gives
with an input is a known one. For what is left:

1. What the user says of a line (``assume={"model.py:12": 3}``) holds there.
2. A truth value is False. A condition that makes a loop go on holds ``trip_count`` times
   (see ``conditions``). Where the run fails after that, the latest such branch that was not
   tried the other way is, from the start (``Flips``).
3. A number, or a size without a bound, is asked for.
4. What rests on an assumed choice or on finite numbers (see ``choices``) is noted where it
   decides something.

Nothing of this holds with ``strict``, nor in an ONNX operator's rule, which has bounds of its
own: values that nobody has are asked for.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from graphmem.errors import TraceError, UsageError, ValueNeededError
from graphmem.options import Options, Routing
from graphmem.schedule import TOP_LEVEL, Unknown
from graphmem.sources.onnx import bounds
from graphmem.trace.conditions import condition_at
from graphmem.trace.ledger import Entry, Ledger
from graphmem.trace.place import Place, is_user_file

Number = bool | int | float
T = TypeVar("T")


@dataclass(slots=True)
class Flips:
    """Branches that are taken the other way, by line, over the attempts of one analysis.

    ``asked`` are the lines of the running attempt, in the order in which they last decided.
    """

    lines: set[str] = field(default_factory=set)
    asked: dict[str, None] = field(default_factory=dict)

    def flip(self) -> bool:
        """Take the latest branch the other way that never was; False if there is none."""
        left = [line for line in self.asked if line not in self.lines]
        self.asked.clear()
        if left:
            self.lines.add(left[-1])
        return bool(left)


@dataclass(frozen=True, slots=True)
class Assuming:
    """How one analysis assumes: what the user says of lines, and what to take elsewhere."""

    given: Mapping[str, Number] = field(default_factory=dict)
    routing: Routing = Routing.BALANCED
    trip_count: int = 1
    strict: bool = False
    flips: Flips = field(default_factory=Flips)

    @classmethod
    def of(cls, options: Options) -> Assuming:
        """As the options say."""
        times = 1 if options.trip_count is None else options.trip_count
        return cls(dict(options.assume), options.routing, times, options.strict)


def flipping(run: Callable[[], T], flips: Flips) -> T:
    """Run, and where the user's code fails on a branch that was assumed, with it turned.

    Raises:
        TraceError: the first failure, if it fails whichever way the branches are taken.
    """
    first: TraceError | None = None
    while True:
        try:
            return run()
        except TraceError as error:
            first = first or error
            if not flips.flip():
                raise first from first.__cause__


class Assumptions:
    """Gives values that nobody has, and notes each.

    Args:
        ledger: takes the notes.
        how: the rules of this analysis.
    """

    def __init__(self, ledger: Ledger, how: Assuming) -> None:
        self.how = how
        self._ledger = ledger
        self._rounds: Counter[str] = Counter()
        self._used: set[str] = set()

    @property
    def refuses(self) -> bool:
        """Whether nothing may be assumed where a value is asked for now."""
        return self.how.strict or bounds.is_asking()

    def branch(self, place: Place, what: str = "a branch on a value") -> bool:
        """The truth value that is asked for at a place.

        Raises:
            ValueNeededError: if nothing may be assumed.
        """
        line = place.source or ""
        condition = _condition()
        given = self.given(place)
        if given is None and self.refuses:
            raise value_needed(what, place)
        if condition is not None:
            return self._loop(line, condition, given)
        value = line in self.how.flips.lines if given is None else bool(given)
        if given is None:
            self.how.flips.asked.pop(line, None)
            self.how.flips.asked[line] = None
        self._ledger.note(Unknown(what, line, f"the value is {value}"))
        return value

    def _loop(self, line: str, goes_on: bool, given: Number | None) -> bool:
        """The condition of a loop that runs its body a number of times."""
        times = int(self.how.trip_count if given is None else given)
        self._ledger.note(Unknown("how often a loop runs", line, f"{times} times"))
        if self._rounds[line] < times:
            self._rounds[line] += 1
            return goes_on
        del self._rounds[line]
        return not goes_on

    def given(self, place: Place) -> Number | None:
        """What the user says of a place; None for nothing."""
        line = place.source or ""
        for name, value in self.how.given.items():
            if line == name or line.endswith(f"/{name}"):
                self._used.add(name)
                return value
        return None

    def check_used(self) -> None:
        """Refuse what the user says of lines that asked for nothing.

        Raises:
            UsageError: naming the first.
        """
        for name in self.how.given:
            if name not in self._used:
                raise UsageError(
                    f"assume {name}: no value was asked for there; "
                    "the lines that ask stand in the report's unknown"
                )

    def number(self, place: Place, what: str, bound: int | None = None) -> Number:
        """The number that is asked for at a place: what the user says, else at most ``bound``.

        Raises:
            ValueNeededError: if there is neither, or nothing may be assumed.
        """
        given = self.given(place)
        if given is None and (bound is None or self.how.strict):
            raise value_needed(what, place)
        value = given if given is not None else (bound or 0)
        told = f"{value}, as given" if given is not None else f"{value}, as large as it may be"
        self._ledger.note(Unknown(what, place.source or "", told))
        return value

    def size(self, place: Place, what: str, bound: int | None) -> int:
        """How many elements an operator finds: what the user says, else at most ``bound``.

        Raises:
            ValueNeededError: if there is neither, or nothing may be assumed.
        """
        given = self.given(place)
        if given is None and (bound is None or self.refuses):
            raise value_needed(what, place)
        count = int(given) if given is not None else (bound or 0)
        told = f"{count}, as given" if given is not None else f"{count}, as many as there may be"
        self._ledger.note(Unknown(f"how many elements {what} finds", place.source or "", told))
        return count

    def decided(self, entries: Iterable[Entry]) -> None:
        """Note what was assumed of values that decide something."""
        for entry in entries:
            if entry.rests_on is not None:
                self._ledger.note(entry.rests_on)


def _condition() -> bool | None:
    """What makes the loop go on whose condition the user's code is in; None if it is in none."""
    frame = sys._getframe(1)
    while frame is not None:
        if is_user_file(frame.f_code.co_filename):
            return condition_at(frame.f_code.co_filename, frame.f_lineno).goes_on
        frame = frame.f_back  # type: ignore[assignment]
    return None


def value_needed(what: str, place: Place) -> ValueNeededError:
    """The error for code that needs values that an analysis does not have."""
    where = place.source or "torch's own code"
    inside = "" if place.module == TOP_LEVEL else f" in module {place.module}"
    return ValueNeededError(
        f"{where}{inside}: {what} decides how the model goes on, and an analysis has no data; give "
        "an example value for the input that it comes from (--input NAME=8x128:int64=1, or a "
        "tensor with data in Python), or say what holds at this line "
        f"(--assume {where.rsplit('/', 1)[-1]}=1)"
    )
