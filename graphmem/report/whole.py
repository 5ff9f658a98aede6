"""The report as a whole, and its JSON form."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from graphmem.errors import UsageError
from graphmem.report.fits import Fits
from graphmem.report.history import History
from graphmem.report.items import (
    Arena,
    Compiled,
    CopyItem,
    GrowthItem,
    Holder,
    HostItem,
    Kernel,
    Layer,
    Peak,
    RecomputationItem,
    Step,
    Subject,
    TimelinePoint,
    UnknownItem,
)

SCHEMA = "graphmem.report/1"


@dataclass(frozen=True)
class Report:
    """The answer of ``graphmem.analyze``.

    ``idle_bytes`` (of the peak) are held although no later operation reads them;
    ``last_use_peak_bytes`` is the peak if every storage died at its last use: what a
    compiler could reach over the same schedule. ``fits`` has the answer for the GPU that was
    named, and called with a name, such as ``report.fits("L4")``, for any. ``growth`` is what
    the run leaves in memory step after step, ``copies`` what it keeps beside the parameters.
    ``ask_history`` finds what pictures are made of; None where a report was read from a file.
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
    fits: Fits = field(default_factory=Fits)
    kernels: tuple[Kernel, ...] = ()
    growth: tuple[GrowthItem, ...] = ()
    copies: tuple[CopyItem, ...] = ()
    arena: Arena | None = None
    compiled: Compiled | None = None
    recomputation: RecomputationItem | None = None
    host: HostItem | None = None
    ask_history: Callable[[], History] | None = field(default=None, compare=False, repr=False)

    @property
    def history(self) -> History:
        """Every operation and tensor of the run, with their places in memory.

        Raises:
            UsageError: of a report that was read from a file: it has no such thing.
        """
        if self.ask_history is None:
            raise UsageError(
                "this report was read from a file, which has no history of the run: "
                "analyze the model again"
            )
        return self.ask_history()

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
            "fits": {name: fit.to_dict() for name, fit in self.fits.items()},
            "kernels": [asdict(kernel) for kernel in self.kernels],
            "growth": [asdict(item) for item in self.growth],
            "copies": [asdict(item) for item in self.copies],
            "unknown": [asdict(item) for item in self.unknown],
        }
        if self.arena is not None:
            result["arena"] = asdict(self.arena)
        if self.compiled is not None:
            result["compiled"] = asdict(self.compiled)
        if self.recomputation is not None:
            result["recomputation"] = asdict(self.recomputation)
        if self.host is not None:
            result["host"] = asdict(self.host)
        if self.timeline is not None:
            result["timeline"] = [asdict(point) for point in self.timeline]
        plain: dict[str, Any] = json.loads(json.dumps(result))
        return plain

    def to_html(self, path: str | Path | None = None) -> str:
        """The report as one page for a browser; also written to a file, if a path is given.

        Raises:
            UsageError: of a report that was read from a file.
        """
        from graphmem.render.html import as_html

        return _kept(as_html(self), path)

    def to_svg(self, path: str | Path | None = None) -> str:
        """The report as one picture; also written to a file, if a path is given.

        Raises:
            UsageError: of a report that was read from a file.
        """
        from graphmem.render.svg import as_svg

        return _kept(as_svg(self), path)

    def to_csv(self, path: str | Path | None = None) -> str:
        """The layers as comma-separated values; also written to a file, if a path is given."""
        from graphmem.exports import as_csv

        return _kept(as_csv(self), path)

    def to_perfetto(self, path: str | Path | None = None) -> str:
        """The run as a trace for Perfetto; also written to a file, if a path is given.

        Raises:
            UsageError: of a report that was read from a file.
        """
        from graphmem.exports import as_trace

        return _kept(as_trace(self), path)

    def to_snapshot(self, path: str | Path | None = None) -> dict[str, Any]:
        """The run as ``torch.cuda.memory._snapshot`` would give it, for PyTorch's memory viewer.

        Args:
            path: the file to write it to as well, such as ``peak.pickle``.

        Raises:
            UsageError: of a run whose allocator is not PyTorch's on CUDA, or a report that was
                read from a file.
        """
        from graphmem.exports import as_snapshot, pickled

        if path is not None:
            Path(path).write_bytes(pickled(self))
        return as_snapshot(self)

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        from graphmem.render.html.notebook import summary

        return summary(self)

    def __str__(self) -> str:
        from graphmem.render import as_text

        return as_text(self)


def _kept(text: str, path: str | Path | None) -> str:
    """The text, after it was written to a file if there is one."""
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def json_schema() -> dict[str, Any]:
    """The JSON Schema of ``Report.to_dict``, as published in this package."""
    from importlib import resources  # slow to import, and rarely needed

    text = resources.files("graphmem").joinpath("report.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
