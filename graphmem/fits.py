"""Whether a run fits on a GPU, and where it runs out of memory if not.

A run fits if its segments fit into what the GPU has for PyTorch's allocator: the capacity
that PyTorch reports, less the most that the CUDA context was seen to take, less the headroom
that the user asks for. Near that limit free segments are given back, as PyTorch does before
it gives up; so what is decided on is a placement under that limit, not the peak of one
without.

Not covered: other processes on the GPU, NCCL's buffers and cuFFT's plans, which lie outside
of PyTorch's allocator.
"""

from __future__ import annotations

from math import ceil

from graphmem import devices
from graphmem.allocator import (
    Placement,
    Shortage,
    Watch,
    block_bytes,
    parse_alloc_conf,
    place,
)
from graphmem.as_text import format_bytes
from graphmem.devices import Gpu
from graphmem.options import Options, Target, is_size, parse_bytes
from graphmem.report import Fit, OutOfMemory
from graphmem.schedule import BEFORE, Schedule, Storage

_MOST_TRIES = 8
"""How often a larger limit is tried for a run that does not fit; two or three are enough."""


def gpu_of(options: Options) -> Gpu:
    """The GPU whose kernels a run has: the named one, else the assumed one."""
    return devices.DEFAULT if options.device is None else devices.find(options.device)


def placement_of(schedule: Schedule, options: Options, watch: Watch | None = None) -> Placement:
    """The blocks that a target's allocator hands out.

    On a GPU that is named, it gives free segments back near the capacity, as PyTorch does.
    """
    target = options.target
    if target is Target.CUDA and options.device is not None:
        gpu = gpu_of(options)
        return place_on(schedule, options, gpu, gpu.context_bytes[1], watch)
    if target is Target.CUDA:
        settings = parse_alloc_conf(options.alloc_conf or "")
        return place(schedule, _on_gpu, settings, watch=watch)
    return Placement(
        block_bytes=tuple(block_bytes(s.nbytes, target) for s in schedule.storages),
        scratch_bytes=tuple(block_bytes(op.scratch_bytes, target) for op in schedule.operations),
        reserved_bytes=(0,) * len(schedule.operations),
    )


def place_on(
    schedule: Schedule,
    options: Options,
    gpu: Gpu,
    reserve_bytes: int,
    watch: Watch | None = None,
) -> Placement:
    """The blocks of a run on a GPU of which ``reserve_bytes`` are not for its allocator."""
    limit = _limit(options, gpu, reserve_bytes)
    return _placed(schedule, options, limit, gpu.capacity_bytes, watch)


def _placed(
    schedule: Schedule, options: Options, limit: int, total: int, watch: Watch | None = None
) -> Placement:
    settings = parse_alloc_conf(options.alloc_conf or "")
    if settings.memory_fraction:  # of a GPU that is large enough for the limit
        total = max(total, ceil((limit + 1) / settings.memory_fraction))
    return place(schedule, _on_gpu, settings, limit, total, watch)


def _on_gpu(storage: Storage) -> bool:
    return not storage.host


def limit_on(options: Options, gpu: Gpu) -> int:
    """The bytes that a run's segments may take on a GPU: less the most of the context."""
    return _limit(options, gpu, gpu.context_bytes[1] + options.headroom)


def _limit(options: Options, gpu: Gpu, reserve_bytes: int) -> int:
    """What PyTorch's allocator may take, also under a memory fraction."""
    fraction = parse_alloc_conf(options.alloc_conf or "").memory_fraction
    allowed = gpu.capacity_bytes if fraction is None else int(fraction * gpu.capacity_bytes)
    return min(gpu.capacity_bytes - reserve_bytes, allowed)


def ask_fit(schedule: Schedule, options: Options, name: str) -> Fit:
    """Whether a run fits on the GPU of a name, or its segments into a size such as ``20GiB``.

    Raises:
        UsageError: if the name is not one of a known GPU, with the nearest.
    """
    if is_size(name):
        return fit_within(schedule, options, parse_bytes(name, "fits"))
    return fit_on(schedule, options, devices.find(name))


def place_within(schedule: Schedule, options: Options, budget: int) -> Placement:
    """The blocks of a run whose segments may take ``budget`` bytes, less the headroom."""
    return _placed(schedule, options, budget - options.headroom, budget)


def fit_within(
    schedule: Schedule, options: Options, budget: int, placement: Placement | None = None
) -> Fit:
    """Whether a run's segments fit into a budget of bytes; a CUDA context is no part of it.

    Args:
        placement: that of ``place_within``, where it is at hand.
    """
    placement = placement or place_within(schedule, options, budget)
    spare = budget - options.headroom - _enough(schedule, options, budget, placement)
    return Fit(
        device=f"a budget of {format_bytes(budget)}",
        fits=placement.shortage is None and spare >= 0,
        headroom_bytes=spare,
        out_of_memory_at=_moment(schedule, placement.shortage),
    )


def fit_on(
    schedule: Schedule, options: Options, gpu: Gpu, placement: Placement | None = None
) -> Fit:
    """Whether a run fits on a GPU.

    Args:
        placement: that of ``place_on`` with the most of the context and the headroom left
            out, where it is at hand.
    """
    low, high = (context + options.headroom for context in gpu.context_bytes)
    placement = placement or place_on(schedule, options, gpu, high)
    spare = limit_on(options, gpu) - _enough(schedule, options, gpu.capacity_bytes, placement)
    fits = placement.shortage is None and spare >= 0
    notes = [*_other_kernels(options, gpu)]
    if not fits and low < high and place_on(schedule, options, gpu, low).shortage is None:
        notes.append(_depends_on_context(gpu))
    return Fit(
        device=gpu.name,
        fits=fits,
        headroom_bytes=spare,
        out_of_memory_at=_moment(schedule, placement.shortage),
        notes=tuple(notes),
    )


def _enough(schedule: Schedule, options: Options, total: int, placement: Placement) -> int:
    """Bytes for the allocator with which a run fits; as far as it is known, no more than that.

    A run under a larger limit gives segments back at other moments, so that what it lacked
    under the smaller one may not be enough; what it would take without a limit always is.
    """
    for _ in range(_MOST_TRIES):
        enough = max(placement.reserved_bytes)
        if placement.shortage is None:
            return enough
        placement = _placed(schedule, options, enough, total)
    settings = parse_alloc_conf(options.alloc_conf or "")
    return max(place(schedule, _on_gpu, settings).reserved_bytes)


def _moment(schedule: Schedule, shortage: Shortage | None) -> OutOfMemory | None:
    if shortage is None:
        return None
    if shortage.operation == BEFORE and shortage.storage is not None:
        storage = schedule.storages[shortage.storage]
        return OutOfMemory(
            step=None,
            phase=None,
            op=None,
            op_index=BEFORE,
            module=storage.module,
            source=storage.source,
            requested_bytes=shortage.requested_bytes,
        )
    op = schedule.operations[shortage.operation]
    return OutOfMemory(
        step=op.step,
        phase=str(op.phase),
        op=op.target,
        op_index=op.index,
        module=op.module,
        source=op.source,
        requested_bytes=shortage.requested_bytes,
    )


def _other_kernels(options: Options, gpu: Gpu) -> list[str]:
    """What to say where the run was recorded with the kernels of another architecture."""
    own = gpu_of(options)
    if own.compute_capability == gpu.compute_capability:
        return []
    assumed = "" if options.device else ", which was assumed"
    return [
        f"with the kernels of {own.name} ({own.arch}{assumed}); "
        f"analyze for {gpu.name} ({gpu.arch}) to have its own"
    ]


def _depends_on_context(gpu: Gpu) -> str:
    low, high = map(format_bytes, gpu.context_bytes)
    return f"it fits where the CUDA context takes {low}, the least that was seen, not {high}"
