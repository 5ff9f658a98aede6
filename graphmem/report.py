"""The report: finished numbers about one analysis, and its JSON form.

All sizes are integers of bytes. ``Report.to_dict`` gives the JSON of schema
``graphmem.report/1``, which ``report.schema.json`` in this package describes; renderers
take a finished ``Report`` and compute nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import resources
from typing import Any

SCHEMA = "graphmem.report/1"

BREAKDOWN = (
    "parameters",
    "buffers",
    "gradients",
    "optimizer_states",
    "inputs",
    "saved_for_backward",
    "outputs",
    "temporaries",
    "workspaces",
    "allocator_slack",
)
"""The categories of a breakdown, in their order. They add up to ``peak.allocated_bytes``."""


@dataclass(frozen=True, slots=True)
class InputInfo:
    """One input tensor of the subject."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Subject:
    """What was analyzed. ``parameters`` count elements, tied ones once."""

    kind: str
    name: str
    parameters: int
    trainable_parameters: int
    inputs: tuple[InputInfo, ...]


@dataclass(frozen=True, slots=True)
class Peak:
    """The worst moment.

    ``reserved_bytes`` and ``device_bytes`` are None where the allocator is not modelled.
    """

    requested_bytes: int
    allocated_bytes: int
    reserved_bytes: int | None
    device_bytes: tuple[int, int] | None
    step: int
    phase: str
    op: str
    op_index: int
    module: str
    source: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """The peaks of one step; a phase that a step does not have is None."""

    step: int
    allocated_bytes: int
    reserved_bytes: int | None
    phases: Mapping[str, int | None]


@dataclass(frozen=True, slots=True)
class Layer:
    """One row of the per-layer table.

    ``output_bytes`` are those of its largest call, ``saved_bytes`` what its operations keep
    for backward (of one step), the peaks the allocated bytes of the whole device while it
    runs, ``live_at_peak_bytes`` its share of ``peak.allocated_bytes``.
    """

    module: str
    type: str
    calls: int
    parameters: int
    parameter_bytes: int
    output_bytes: int
    saved_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    forward_peak_bytes: int | None
    backward_peak_bytes: int | None
    live_at_peak_bytes: int


@dataclass(frozen=True, slots=True)
class Holder:
    """A storage that is live at the peak.

    ``born``, ``last_use`` and ``freed`` are indices of operations (-1: before the first,
    None: never). ``idle_bytes`` are its bytes if no later operation reads it, else 0.
    """

    bytes: int
    shape: tuple[int, ...]
    dtype: str
    category: str
    op: str | None
    module: str
    source: str | None
    born: int
    last_use: int
    freed: int | None
    idle_bytes: int


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """The bytes allocated while one operation runs."""

    index: int
    phase: str
    op: str
    module: str
    allocated_bytes: int
    reserved_bytes: int | None


@dataclass(frozen=True, slots=True)
class Kernel:
    """Which of several kernels ``calls`` calls of an operator run, and why."""

    op: str
    kernel: str
    why: str
    calls: int


@dataclass(frozen=True, slots=True)
class UnknownItem:
    """What could not be known and what was assumed instead."""

    what: str
    where: str
    assumed: str
    bytes: int | None


@dataclass(frozen=True)
class Report:
    """The answer of ``graphmem.analyze``.

    ``idle_bytes`` (of the peak) are held although no later operation reads them;
    ``last_use_peak_bytes`` is the peak if every storage died at its last use: what a
    compiler could reach over the same schedule.
    """

    subject: Subject
    created_from: Mapping[str, Any]
    peak: Peak
    steps: tuple[Step, ...]
    breakdown: Mapping[str, int]
    layers: tuple[Layer, ...]
    holders: tuple[Holder, ...]
    unknown: tuple[UnknownItem, ...]
    idle_bytes: int
    last_use_peak_bytes: int
    graphmem: str
    torch: str
    device: Mapping[str, Any] | None = None
    timeline: tuple[TimelinePoint, ...] | None = None
    fits: Mapping[str, Any] = field(default_factory=dict)
    kernels: tuple[Kernel, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values, schema ``graphmem.report/1``."""
        peak = asdict(self.peak)
        if self.peak.device_bytes is not None:
            low, high = self.peak.device_bytes
            peak["device_bytes"] = {"low": low, "high": high}
        result: dict[str, Any] = {
            "schema": SCHEMA,
            "graphmem": self.graphmem,
            "torch": self.torch,
            "created_from": dict(self.created_from),
            "subject": asdict(self.subject),
            "device": None if self.device is None else dict(self.device),
            "peak": peak,
            "steps": [asdict(step) for step in self.steps],
            "breakdown": dict(self.breakdown),
            "layers": [asdict(layer) for layer in self.layers],
            "holders": [asdict(holder) for holder in self.holders],
            "idle_bytes": self.idle_bytes,
            "last_use_peak_bytes": self.last_use_peak_bytes,
            "fits": dict(self.fits),
            "kernels": [asdict(kernel) for kernel in self.kernels],
            "unknown": [asdict(item) for item in self.unknown],
        }
        if self.timeline is not None:
            result["timeline"] = [asdict(point) for point in self.timeline]
        plain: dict[str, Any] = json.loads(json.dumps(result))
        return plain

    def __str__(self) -> str:
        from graphmem.render import as_text

        return as_text(self)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of ``Report.to_dict``, as published in this package."""
    text = resources.files("graphmem").joinpath("report.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
