"""The report: finished numbers about one analysis, and its JSON form.

All sizes are integers of bytes. ``Report.to_dict`` gives the JSON of schema
``graphmem.report/1``, which ``report.schema.json`` in this package describes; renderers
take a finished ``Report`` and compute nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib import resources
from typing import Any

from graphmem.errors import UsageError

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

    ``reserved_bytes`` is None where the allocator is not modelled. ``device_bytes`` is what
    nvidia-smi shows, from and to: reserved, and the range of the GPU's CUDA context; None
    where no GPU is named. If the named GPU is too small, all are what the run would take.
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
class GrowthItem:
    """What each step (``per``), or each turn of a loop inside of a step, adds and keeps.

    ``kind`` is ``graph`` (a kept tensor keeps its autograd graph and what that saved),
    ``tensors`` (they are kept themselves), ``optimizer_states`` (as LBFGS's, until its history
    is full) or ``cache`` (made anew and longer each time). The bytes are those of blocks, of a
    cache without rounding. The shape, dtype, operator, module and source line are those of the
    tensor that keeps the others, or of the largest; ``holder`` is the user's object that has
    it, where it has a name. Seen in ``times`` steps or turns.
    """

    kind: str
    per: str
    bytes: int
    tensors: int
    times: int
    holder: str | None
    shape: tuple[int, ...]
    dtype: str
    op: str | None
    module: str
    source: str | None


@dataclass(frozen=True, slots=True)
class CopyItem:
    """A copy of the parameters, or of the gradients (``of``), that is live at the peak.

    ``source`` is the line that made it or, of an older one, that writes or reads it first.
    ``times`` is how many copies there are.
    """

    of: str
    bytes: int
    tensors: int
    times: int
    holder: str | None
    source: str | None


@dataclass(frozen=True, slots=True)
class RecomputationItem:
    """What checkpoints save and hold in a backward (``graphmem.recomputation`` defines it).

    ``flops`` are those of the step, ``recomputed_flops`` a part of them, by the formulas of
    ``torch.utils.flop_counter``. ``remade_bytes`` are made anew in the whole of it,
    ``at_once_bytes`` by the largest of ``count`` recomputations, which is of ``largest``;
    ``kept_bytes`` are kept for recomputations alone. ``saved_bytes`` is the first less the other
    two. ``modules`` are those that the options checkpoint, else those that were recomputed.
    """

    modules: tuple[str, ...]
    count: int
    flops: int
    recomputed_flops: int
    remade_bytes: int
    at_once_bytes: int
    largest: str | None
    kept_bytes: int
    saved_bytes: int


@dataclass(frozen=True, slots=True)
class HostItem:
    """The most bytes that offloaded tensors take on the host, and the pinned blocks for them.

    ``pinned_bytes`` is None where they are not pinned.
    """

    peak_bytes: int
    pinned_bytes: int | None


@dataclass(frozen=True, slots=True)
class UnknownItem:
    """What could not be known and what was assumed instead."""

    what: str
    where: str
    assumed: str
    bytes: int | None


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """The request at which a run ends, and who makes it.

    ``step``, ``phase`` and ``op`` are None, and ``op_index`` is -1, where not even what
    stands in memory before the first operation (weights, inputs) has its place.
    """

    step: int | None
    phase: str | None
    op: str | None
    op_index: int
    module: str
    source: str | None
    requested_bytes: int


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a run fits on a GPU; true in a condition if it does.

    Decided on the bytes reserved plus the most that the CUDA context was seen to take, with
    free segments given back near the capacity. ``headroom_bytes`` is what is left then,
    besides the headroom that was asked for; negative where the run does not fit: with that
    much more memory it does. ``notes`` are sentences on what the answer depends on.
    """

    device: str
    fits: bool
    headroom_bytes: int
    out_of_memory_at: OutOfMemory | None
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.fits

    def to_dict(self) -> dict[str, Any]:
        """The fit as JSON values; the device's name is the key that it stands under."""
        values = asdict(self)
        del values["device"]
        return values


class Fits(Mapping[str, Fit]):
    """The answer for the GPU that was named, by its name; called, for any other.

    ``ask`` finds such an answer; None where the run is not one of CUDA.
    """

    def __init__(
        self, known: Mapping[str, Fit] | None = None, ask: Callable[[str], Fit] | None = None
    ) -> None:
        self._known = dict(known or {})
        self._ask = ask

    def __call__(self, device: str) -> Fit:
        """Whether the run fits on a GPU, by any of its names.

        The kernels stay those of the GPU that was analyzed for; where this one has another
        architecture, the answer says so in its ``notes``.

        Raises:
            UsageError: for an unknown GPU, with the nearest names, and for a run that is not
                of CUDA.
        """
        if self._ask is None:
            raise UsageError("fits: only a report on target cuda tells what fits on a GPU")
        return self._ask(device)

    def __getitem__(self, name: str) -> Fit:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def __repr__(self) -> str:
        return f"Fits({self._known!r})"


@dataclass(frozen=True, slots=True)
class ArenaRun:
    """The peaks of ONNX Runtime's arena over the kernels of a run, as its profile tells them.

    ``node`` and ``op`` are the kernel with the most bytes in use.
    """

    requested_peak_bytes: int
    in_use_peak_bytes: int
    arena_bytes: int
    node: str
    op: str


@dataclass(frozen=True, slots=True)
class Arena:
    """ONNX Runtime's arena: the first run, and those after it with the same input sizes.

    ``outputs_bytes`` is the sum of all nodes' outputs, ``resting_bytes`` what the session holds
    in the arena before it runs, ``best_bytes`` that and the smallest block that was found for
    all buffers of the first run, each from the node that makes it to the last that reads it.
    """

    first_run: ArenaRun
    later_runs: ArenaRun
    outputs_bytes: int
    resting_bytes: int
    best_bytes: int


@dataclass(frozen=True, slots=True)
class Range:
    """Between the least and the most bytes."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Compiled:
    """The same run under ``torch.compile``, the least and the most that it takes.

    The most is that of AOTAutograd's graphs, operator by operator; the least that of kernels
    fused and written in place as far as they may be. ``saved_bytes`` are what forward keeps
    for backward (of one step), ``eager_saved_bytes`` the same without the compiler. Step,
    phase, operator, module and line are those of the higher peak.
    """

    requested_bytes: Range
    allocated_bytes: Range
    reserved_bytes: Range | None
    saved_bytes: int
    eager_saved_bytes: int
    graphs: int
    step: int
    phase: str
    op: str
    module: str
    source: str | None


@dataclass(frozen=True)
class Report:
    """The answer of ``graphmem.analyze``.

    ``idle_bytes`` (of the peak) are held although no later operation reads them;
    ``last_use_peak_bytes`` is the peak if every storage died at its last use: what a
    compiler could reach over the same schedule. ``fits`` has the answer for the GPU that was
    named, and called with a name, such as ``report.fits("L4")``, for any. ``growth`` is what
    the run leaves in memory step after step, ``copies`` what it keeps beside the parameters.
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

    def __str__(self) -> str:
        from graphmem.render import as_text

        return as_text(self)


def json_schema() -> dict[str, Any]:
    """The JSON Schema of ``Report.to_dict``, as published in this package."""
    text = resources.files("graphmem").joinpath("report.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
