"""Verification of models of the zoo: real steps on the CPU beside the prediction.

1. Models are drawn from all installed families, in a random order that a seed repeats, each with
   a random mode, until so many are compared. Those that are too large to be run in a test, or
   that can't be run, are passed over and counted.
2. A model passes if its peaks are equal within 1 %, as measured, or without the scratch that the
   real kernels allocate for themselves (``measure.cpu`` names it by operator).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Self

import torch
from tabulate import tabulate

from graphmem.errors import one_line
from graphmem.measure.cpu import verify_call
from graphmem.options import Mode, Options, Target
from tools.sweeping.families import FAMILIES
from tools.sweeping.processes import Limits, each_in_a_process

MOST_PARAMETERS = 30_000_000
"""Of a model that is run: 16 B each, for two training steps."""

TOLERANCE = 0.01
"""Of the measured peak."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One model; bytes. ``passed_over`` says why it was not compared, None if it was."""

    family: str
    name: str
    mode: str
    predicted_bytes: int = 0
    measured_bytes: int = 0
    unexplained_bytes: int = 0
    passed_over: str | None = None

    @property
    def passes(self) -> bool:
        """Whether the peaks are equal within 1 %, without the real kernels' scratch."""
        return abs(self.unexplained_bytes) <= TOLERANCE * self.measured_bytes

    @property
    def difference(self) -> float:
        """Measured minus predicted, as a share of measured."""
        return (self.measured_bytes - self.predicted_bytes) / max(self.measured_bytes, 1)

    @classmethod
    def from_line(cls, line: str) -> Self:
        """What a line of JSON holds."""
        return cls(**json.loads(line))


def compared(families: Sequence[str], count: int, seed: int, jobs: int) -> Iterator[Compared]:
    """Models as they are compared, and those that are passed over, until ``count`` are."""
    for name in families:
        FAMILIES[name].warm()
    torch.set_num_threads(1)
    ended = each_in_a_process(draw(families, seed), _work, Limits(600.0, 6 * 2**30), jobs)
    for one in ended:
        family, mode, name = one.case.split("/", 2)
        lost = Compared(family, name, mode, passed_over=f"{one.kind}: {one.detail}")
        found = lost if one.line is None else Compared.from_line(one.line)
        yield found
        count -= found.passed_over is None
        if not count:
            ended.close()
            return


def draw(families: Sequence[str], seed: int) -> list[str]:
    """``family/mode/name`` of all their models in a random order."""
    drawn = random.Random(seed)
    everything = [(family, name) for family in families for name in FAMILIES[family].names()]
    drawn.shuffle(everything)
    return [f"{family}/{drawn.choice(list(Mode)).value}/{name}" for family, name in everything]


def _work(text: str) -> str:
    family, mode, name = text.split("/", 2)
    try:
        found = _compare(family, name, Mode(mode))
    except Exception as error:
        why = f"{type(error).__name__}: {one_line(error)}"
        found = Compared(family, name, mode, passed_over=why)
    return json.dumps(asdict(found))


def _compare(family: str, name: str, mode: Mode) -> Compared:
    case = FAMILIES[family].case(name)
    refused = case.refused(mode)
    if refused is not None:
        return Compared(family, name, mode.value, passed_over=f"not runnable: {refused}")
    subject = case.subject(mode)
    count = sum(p.numel() for p in subject.model.parameters())
    if count > MOST_PARAMETERS:
        why = f"{count:,} parameters are too many to run here"
        return Compared(family, name, mode.value, passed_over=why)
    if subject.rebuild_really is not None:
        subject = subject.rebuild_really()
    options = Options(mode=mode, target=Target.CPU)
    found = verify_call(subject.model, (subject.args, subject.kwargs), options)
    peaks = (found.predicted_peak_bytes, found.measured_peak_bytes, found.unexplained_bytes)
    return Compared(family, name, mode.value, *peaks)


def table(found: Sequence[Compared]) -> str:
    """A row for each model that was compared, the worst last, and what was passed over."""
    done = [one for one in found if one.passed_over is None]
    done.sort(key=lambda one: abs(one.unexplained_bytes) / max(one.measured_bytes, 1))
    rows = [_row(one) for one in done]
    text = tabulate(rows, _HEAD, tablefmt="github", disable_numparse=True)
    over = [
        f"{one.family}, {one.name}, {one.mode}: passed over: {one.passed_over}"
        for one in found
        if one.passed_over is not None
    ]
    passed = sum(one.passes for one in done)
    return "\n".join([text, "", f"{passed} of {len(done)} within 1 %", *over])


_HEAD = (
    *("family", "model", "mode", "predicted", "measured", "difference", "unexplained"),
    "within 1 %",
)


def _row(one: Compared) -> tuple[str, ...]:
    sizes = [f"{n:,}" for n in (one.predicted_bytes, one.measured_bytes)]
    judged = (f"{one.difference:+.2%}", f"{one.unexplained_bytes:,}", "yes" if one.passes else "NO")
    return (one.family, one.name, one.mode, *sizes, *judged)
