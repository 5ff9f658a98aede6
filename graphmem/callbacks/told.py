"""The prediction of a training, the measurement beside it, and what is printed of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from graphmem import devices
from graphmem.as_text import format_bytes, format_share
from graphmem.errors import GraphmemError, UsageError, one_line
from graphmem.render.facts import peak_moment, peak_size
from graphmem.report import Report

MEASURED_AFTER = 2
"""Steps: the optimizer's state is there in the second."""


@dataclass(frozen=True, slots=True)
class Measured:
    """``torch.cuda.max_memory_allocated()`` and ``max_memory_reserved()`` of this process."""

    allocated_bytes: int
    reserved_bytes: int


class Told:
    """Makes the prediction, measures, and prints a line for each.

    Args:
        device: the GPU; None: the one that PyTorch has, if it is known.
        say: prints a line.
    """

    def __init__(self, device: str | None, say: Callable[[str], None]) -> None:
        self.report: Report | None = None
        self.measured: Measured | None = None
        self.device = device
        self._say = say

    def predict(self, analyze: Callable[[str | None], Report]) -> None:
        """Print the prediction; where it can't be made, why: the training goes on.

        Args:
            analyze: gives the report for a GPU's name.
        """
        device = self.device or _present()
        try:
            self.report = analyze(device)
        except GraphmemError as error:
            self._say(f"graphmem: no prediction: {one_line(error)}")
            return
        self._say(f"graphmem: {predicted(self.report)}")

    def measure(self, steps: int, *, is_last: bool = False) -> None:
        """Print the measurement after the second step, or the last if there are fewer."""
        if self.measured is not None or not torch.cuda.is_available():
            return
        if steps < MEASURED_AFTER and not is_last:
            return
        self.measured = Measured(
            torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        )
        self._say(f"graphmem: {beside(self.measured, self.report, steps)}")


class Telling:
    """What the callbacks of all trainers have in common.

    ``report`` is the prediction (None where it can't be made), ``measured`` what was measured
    (None before, and without a GPU).

    Args:
        device: the GPU, such as ``"L4"``; by default the one that PyTorch has.
        inputs: a batch, as the trainer hands it on; by default the first items of the dataset.
        say: prints a line.
        options: more arguments of the analysis.
    """

    def __init__(
        self,
        device: str | None = None,
        inputs: Any = None,
        say: Callable[[str], None] = print,
        **options: Any,
    ) -> None:
        self._told = Told(device, say)
        self._inputs = inputs
        self._options = options

    @property
    def report(self) -> Report | None:
        """The prediction."""
        return self._told.report

    @property
    def measured(self) -> Measured | None:
        """The measurement."""
        return self._told.measured


def predicted(report: Report) -> str:
    """``Peak 14.31 GiB allocated, 15.00 GiB reserved, in step 2, ...; fits on L4, 5 GiB left``."""
    reserved = report.peak.reserved_bytes
    parts = [peak_size(report)]
    if reserved is not None:
        parts.append(f"{format_bytes(reserved)} reserved")
    parts.append(peak_moment(report))
    text = ", ".join(parts)
    for fit in report.fits.values():
        spare = format_bytes(abs(fit.headroom_bytes))
        text += (
            f"; fits on {fit.device}, {spare} left"
            if fit
            else (f"; does not fit on {fit.device}: {spare} are missing")
        )
    if report.unknown:
        text += f"; {len(report.unknown)} assumptions (report.unknown)"
    return text


def beside(measured: Measured, report: Report | None, steps: int) -> str:
    """The measurement, and how far the prediction was from it."""
    text = f"measured after {steps} steps: " + ", ".join(
        f"{format_bytes(nbytes)} {name}"
        for nbytes, name in (
            (measured.allocated_bytes, "allocated"),
            (measured.reserved_bytes, "reserved"),
        )
    )
    if report is None:
        return text
    off = report.peak.allocated_bytes - measured.allocated_bytes
    share = format_share(abs(off), measured.allocated_bytes)
    return f"{text}; the prediction was {format_bytes(off, signed=True)} off ({share})"


def _present() -> str | None:
    """The name of the GPU that PyTorch has, if graphmem knows it."""
    if not torch.cuda.is_available():
        return None
    try:
        return devices.find(torch.cuda.get_device_name().removeprefix("NVIDIA ")).name
    except UsageError:
        return None
