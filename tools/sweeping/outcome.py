"""What a sweep keeps of a case: one JSON line with both modes, read again when it goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from graphmem.errors import (
    GraphmemError,
    InputError,
    InvariantError,
    ModelLoadError,
    TraceError,
    UnsupportedOpError,
    UsageError,
    ValueNeededError,
    one_line,
)

CRASH, TIMEOUT, MEMORY = "crash", "timeout", "out of memory"
"""How a case's process can end without a result."""

NOT_RUNNABLE = "not runnable"
"""The kind of a case that the library's own code can't run on the CPU: no failure of ours."""

_KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (ValueNeededError, "value needed"),
    (UnsupportedOpError, "operator without a fake kernel"),
    (TraceError, "failed under trace"),
    (ModelLoadError, "can't be built"),
    (InputError, "inputs"),
    (UsageError, "usage"),
    (InvariantError, "broken invariant"),
    (GraphmemError, "other"),
    (MemoryError, MEMORY),
)


@dataclass(frozen=True, slots=True)
class ModeOutcome:
    """One mode of a case: the peak in bytes, or the kind of error and its line.

    ``seconds`` are those of a processor.
    """

    seconds: float
    peak_bytes: int | None = None
    unknowns: tuple[str, ...] = ()
    kind: str | None = None
    line: str = ""

    @property
    def ok(self) -> bool:
        """Whether there is a report."""
        return self.kind is None

    @property
    def counts(self) -> bool:
        """Whether the model itself can be run, so that a missing report is a failure."""
        return self.kind != NOT_RUNNABLE


OWN_RUN = ModeOutcome(0.0, kind=NOT_RUNNABLE, line="its own run on the CPU")
"""Stands for a mode while the library's code runs: for good, if that ends the process."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One case: a model of a family, in each mode that was asked for.

    ``version`` is the library's. ``how`` says how the case was built where there is a choice.
    """

    family: str
    name: str
    version: str
    modes: dict[str, ModeOutcome] = field(default_factory=dict)
    how: str = ""

    @property
    def ok(self) -> bool:
        """Whether every mode that can be run has its report."""
        return all(mode.ok or not mode.counts for mode in self.modes.values())

    def ended_by(self, detail: str) -> Self:
        """With what ended the library's own run, in the modes that wait for it."""
        line = f"{OWN_RUN.line}: {detail}"
        modes = {
            name: replace(mode, line=line) if mode == OWN_RUN else mode
            for name, mode in self.modes.items()
        }
        return replace(self, modes=modes)

    def to_line(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_line(cls, line: str) -> Self:
        """The outcome that a line holds."""
        values: dict[str, Any] = json.loads(line)
        modes = {
            name: ModeOutcome(**{**mode, "unknowns": tuple(mode["unknowns"])})
            for name, mode in values.pop("modes").items()
        }
        return cls(**values, modes=modes)


def failed(error: BaseException, seconds: float) -> ModeOutcome:
    """The outcome of a mode that ended with an exception."""
    kind = next((kind for types, kind in _KINDS if isinstance(error, types)), "traceback")
    line = one_line(error)
    if kind == "traceback":
        line = f"{type(error).__name__}: {line}{_raised_at(error)}"
    return ModeOutcome(seconds, kind=kind, line=line[:400])


def _raised_at(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    return f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})"


def outcomes_in(file: Path) -> Iterator[Outcome]:
    """The outcomes of a sweep's file; a last line that was cut off by a kill is left out."""
    if not file.exists():
        return
    for line in file.read_text("utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield Outcome.from_line(line)


def ready_to_append(file: Path) -> None:
    """Drop a last line that was cut off, and make the folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists():
        text = file.read_text("utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            file.write_text(whole, "utf-8")
