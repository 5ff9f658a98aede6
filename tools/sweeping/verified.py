"""Verification of models of the zoo: real steps on the CPU beside the prediction.

1. Models are drawn from all installed families, in a random order that a seed repeats, each with
   a random mode, until so many are compared.
2. What can't be run here is passed over, with its reason: a model that its own library can't run,
   one whose parameters alone don't fit the limit of memory, one that runs into a limit. What
   fails otherwise is a failure of graphmem, and counts.
3. A model passes if its peaks are equal within 1 %, as measured, or without the scratch that the
   real kernels allocate for themselves (``measure.cpu`` names it by operator).
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Self

import torch

from graphmem.errors import one_line
from graphmem.measure.cpu import Verification, verify_call
from graphmem.options import Mode, Options, Target
from tools.sweeping.families import FAMILIES
from tools.sweeping.outcome import CRASH
from tools.sweeping.processes import Ended, Limits, each_in_a_process

TOLERANCE = 0.01
"""Of the measured peak."""

_COPIES = {Mode.INFERENCE: 2, Mode.TRAINING: 5}
"""Of the parameters while a model is verified: it and the copy that runs; gradients, two states."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One model; bytes. ``passed_over`` says why it can't be run, ``error`` what failed instead.

    ``scratch`` are the operators whose real kernels held memory of their own at the measured
    peak, and how much, the largest first.
    """

    family: str
    name: str
    mode: str
    predicted_bytes: int = 0
    measured_bytes: int = 0
    unexplained_bytes: int = 0
    scratch: tuple[tuple[str, int], ...] = ()
    passed_over: str | None = None
    error: str | None = None

    @property
    def case(self) -> str:
        """As it is drawn."""
        return f"{self.family}/{self.mode}/{self.name}"

    @property
    def passes(self) -> bool:
        """Whether the peaks are equal within 1 %, without the real kernels' scratch."""
        close = abs(self.unexplained_bytes) <= TOLERANCE * self.measured_bytes
        return close and self.error is None

    @property
    def difference_bytes(self) -> int:
        """Measured minus predicted."""
        return self.measured_bytes - self.predicted_bytes

    def to_line(self) -> str:
        """As a line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Self:
        """What a line of JSON holds."""
        values = json.loads(line)
        return cls(**{**values, "scratch": tuple((op, size) for op, size in values["scratch"])})


def compared_in(file: Path) -> Iterator[Compared]:
    """What a file of lines holds; nothing if there is none."""
    if file.exists():
        yield from map(Compared.from_line, file.read_text("utf-8").splitlines())


def compared(
    families: Sequence[str],
    count: int,
    seed: int,
    limits: Limits,
    jobs: int = 1,
    done: Collection[Compared] = (),
) -> Iterator[Compared]:
    """Models as they are compared, and those that are passed over, until ``count`` are.

    With one job they are the same for a seed, and so are the families and the limits.

    Args:
        done: of the same seed, which are not run again.
    """
    for name in families:
        FAMILIES[name].warm()
    torch.set_num_threads(1)
    count -= sum(one.passed_over is None for one in done)
    known = {one.case for one in done}
    left = [case for case in draw(families, seed) if case not in known]
    if count <= 0:
        return
    ended = each_in_a_process(left, partial(_work, limits), limits, jobs)
    for one in ended:
        found = _lost(one) if one.line is None else Compared.from_line(one.line)
        yield found
        count -= found.passed_over is None
        if not count:
            ended.close()
            return


def _lost(ended: Ended) -> Compared:
    """Of a case whose process could not tell: a limit was met, or it crashed."""
    family, mode, name = ended.case.split("/", 2)
    why = f"{ended.kind}: {ended.detail}"
    if ended.kind == CRASH:
        return Compared(family, name, mode, error=why)
    return Compared(family, name, mode, passed_over=why)


def draw(families: Sequence[str], seed: int) -> list[str]:
    """``family/mode/name`` of all their models in a random order."""
    drawn = random.Random(seed)
    everything = [(family, name) for family in families for name in FAMILIES[family].names()]
    drawn.shuffle(everything)
    return [f"{family}/{drawn.choice(list(Mode)).value}/{name}" for family, name in everything]


def _work(limits: Limits, text: str) -> str:
    family, mode, name = text.split("/", 2)
    try:
        found = _compare(family, name, Mode(mode), limits)
    except Exception as error:
        why = f"{type(error).__name__}: {one_line(error)}"
        found = Compared(family, name, mode, error=why)
    return found.to_line()


def _compare(family: str, name: str, mode: Mode, limits: Limits) -> Compared:
    case = FAMILIES[family].case(name)
    refused = case.refused(mode)
    if refused is not None:
        return Compared(family, name, mode.value, passed_over=f"not runnable: {refused}")
    subject = case.subject(mode)
    needed = _COPIES[mode] * sum(p.nbytes for p in subject.model.parameters())
    if needed > limits.nbytes:
        why = f"its parameters, {_COPIES[mode]} times, take {needed / 2**30:.1f} GiB"
        return Compared(family, name, mode.value, passed_over=why)
    if subject.rebuild_really is not None:
        subject = subject.rebuild_really()
    options = Options(mode=mode, target=Target.CPU)
    found = verify_call(subject.model, (subject.args, subject.kwargs), options)
    peaks = (found.predicted_peak_bytes, found.measured_peak_bytes, found.unexplained_bytes)
    return Compared(family, name, mode.value, *peaks, scratch=tuple(_scratch_at_peak(found)))


def _scratch_at_peak(found: Verification) -> Iterator[tuple[str, int]]:
    for row in found.scratch:
        if row.kind == "allocated, not predicted" and row.bytes_at_peak:
            yield row.operator, row.bytes_at_peak
