"""A case: a model that can be loaded for a mode, analyzed, and where it is asked run for real."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from graphmem.analysis import traced_call
from graphmem.errors import ValueNeededError, one_line
from graphmem.options import Mode, Options, Target
from graphmem.report import Report
from graphmem.resolve import make_options
from graphmem.sources import InputRequest, LoadedSubject, load_subject
from graphmem.sources.building import Built, Recipe
from graphmem.sources.subject import loaded
from graphmem.trace.inputs import Call, real_input, replace
from graphmem.trace.step import Loop
from tools.sweeping.outcome import NOT_RUNNABLE, OWN_RUN, ModeOutcome, Outcome, failed

BATCH = 2
"""Of every model: normalizations over a batch of one can't train."""


class Case(Protocol):
    """One model of a family."""

    assume: Mapping[Mode, Mapping[str, int]]

    @property
    def how(self) -> str:
        """How it was built, where there is a choice."""

    def refused(self, mode: Mode) -> str | None:
        """Why the library's own code can't run it on the CPU; None if it can, or isn't asked."""

    def subject(self, mode: Mode) -> LoadedSubject:
        """The model with its inputs, as graphmem loads them."""


def said(assume: Mapping[Mode, Mapping[str, int]]) -> str:
    """What is assumed of lines, as the command line is told."""
    lines = ((mode, line) for mode, lines in assume.items() for line in lines.items())
    return ", ".join(f"{mode}: --assume {line}={value}" for mode, (line, value) in lines)


@dataclass
class NamedCase:
    """A model that graphmem knows by name, such as ``timm:resnet18``: not run for real.

    ``assume`` is what ``--assume`` says of lines whose values nobody has.
    """

    text: str
    assume: Mapping[Mode, Mapping[str, int]] = field(default_factory=dict)

    @property
    def how(self) -> str:
        """What was said beside the name."""
        return said(self.assume)

    def refused(self, mode: Mode) -> str | None:
        """Nothing is asked: the model is of a published size."""
        return None

    def subject(self, mode: Mode) -> LoadedSubject:
        """As the command line loads it."""
        return load_subject(self.text, InputRequest(batch=BATCH, labels=mode is Mode.TRAINING))


@dataclass
class BuiltCase:
    """A model that a function builds, as a user's factory would; first it is run for real."""

    text: str
    build: Callable[[Mode], Built]
    how: str = ""
    assume: Mapping[Mode, Mapping[str, int]] = field(default_factory=dict)

    def refused(self, mode: Mode) -> str | None:
        """What the real run of one step ended with."""
        try:
            run_really(self._loaded(mode, really=True), mode)
        except Exception as error:
            return f"{type(error).__name__}: {one_line(error)}"
        return None

    def subject(self, mode: Mode) -> LoadedSubject:
        """As a factory of the command line's is loaded."""
        return self._loaded(mode, really=False)

    def _loaded(self, mode: Mode, *, really: bool) -> LoadedSubject:
        recipe = Recipe("factory", self.text, lambda: self.build(mode))
        return loaded(self.text, recipe, InputRequest(), really=really)


def run_really(subject: LoadedSubject, mode: Mode) -> None:
    """One step of the model on the CPU, by its own code, with values."""
    call: Call = replace((subject.args, subject.kwargs), lambda leaf: real_input(leaf, None))
    loop = Loop(subject.model, *call, Options(mode=mode, target=Target.CPU))
    torch.manual_seed(0)
    loop.prepare()
    loop.step()


def analyzed(case: Case, mode: Mode) -> Report:
    """The report of a case, as ``graphmem analyze`` makes it."""
    subject = case.subject(mode)
    try:
        return _report(case, subject, mode)
    except ValueNeededError:
        if subject.rebuild_really is None:
            raise
        return _report(case, subject.rebuild_really(), mode)


def _report(case: Case, subject: LoadedSubject, mode: Mode) -> Report:
    call = (subject.args, subject.kwargs)
    options = make_options(mode=mode.value, assume=case.assume.get(mode))
    report, _ = traced_call(subject.model, call, options, kind=subject.kind, name=subject.name)
    return report


def outcome_of(
    family: str,
    name: str,
    version: str,
    make: Callable[[], Case],
    modes: Sequence[Mode] = tuple(Mode),
    tell: Callable[[Outcome | None], None] = lambda _: None,
) -> Outcome:
    """A case in some modes; nothing that a model does raises.

    While the library's own code runs, ``tell`` has the outcome that stands if that ends the
    process: what it takes is no part of an analysis.
    """
    began = time.process_time()
    try:
        case = make()
    except Exception as error:
        lost = failed(error, time.process_time() - began)
        return Outcome(family, name, version, {mode.value: lost for mode in modes})
    outcomes: dict[str, ModeOutcome] = {}
    for mode in modes:
        left = {mode.value: OWN_RUN for mode in modes if mode.value not in outcomes}
        tell(Outcome(family, name, version, outcomes | left, case.how))
        try:
            refused = case.refused(mode)
        except Exception as error:
            outcomes[mode.value] = failed(error, 0.0)
            continue
        finally:
            tell(None)
        outcomes[mode.value] = _mode_outcome(case, mode, refused)
    return Outcome(family, name, version, outcomes, case.how)


def _mode_outcome(case: Case, mode: Mode, refused: str | None) -> ModeOutcome:
    if refused is not None:
        return ModeOutcome(0.0, kind=NOT_RUNNABLE, line=refused[:400])
    began = time.process_time()
    try:
        report = analyzed(case, mode)
    except Exception as error:
        return failed(error, time.process_time() - began)
    unknowns = tuple(dict.fromkeys(item.what for item in report.unknown))
    seconds = round(time.process_time() - began, 3)
    return ModeOutcome(seconds, report.peak.allocated_bytes, unknowns)
