"""The parts of a report: finished numbers, all sizes integers of bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
