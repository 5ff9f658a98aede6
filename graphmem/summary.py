"""From a schedule to a report: every number in it is derived here, none in a renderer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, TypeVar

import graphmem
from graphmem import collector, copies, liveness, recomputation, techniques
from graphmem.allocator import Placement
from graphmem.devices import Gpu
from graphmem.fits import ask_fit, fit_on, gpu_of, placement_of
from graphmem.history import history_of
from graphmem.host import host_bytes
from graphmem.liveness import Lifetimes, Liveness
from graphmem.options import Options, Target
from graphmem.report import (
    BREAKDOWN,
    CopyItem,
    Fits,
    GrowthItem,
    Holder,
    HostItem,
    Kernel,
    Layer,
    Peak,
    Report,
    Step,
    Subject,
    TimelinePoint,
    UnknownItem,
)
from graphmem.schedule import BEFORE, Category, Growing, Module, Phase, Schedule, Storage

HOLDERS = 100
"""How many of the largest holders a report lists."""


def summarize(
    schedule: Schedule,
    subject: Subject,
    options: Options,
    created_from: Mapping[str, Any],
    torch_version: str,
    timeline: bool = False,
    placement: Placement | None = None,
) -> Report:
    """The report on a schedule.

    Args:
        created_from: the options as the report shows them.
        timeline: list every operation with its live bytes.
        placement: the blocks that another allocator than the target's hands out.
    """
    with collector.off():
        summary = _Summary(schedule, options, placement)
        return summary.report(subject, created_from, torch_version, timeline)


def peak_of(schedule: Schedule, options: Options) -> Peak:
    """The worst moment of a schedule."""
    return _Summary(schedule, options).peak()


def peak_and_fits(schedule: Schedule, options: Options) -> tuple[Peak, Fits]:
    """The worst moment of a schedule, and where it fits: a report's, without the rest of it."""
    summary = _Summary(schedule, options)
    return summary.peak(), summary.fits()


def peak_and_breakdown(
    schedule: Schedule, options: Options, placement: Placement | None = None
) -> tuple[Peak, dict[str, int]]:
    """The worst moment of a schedule, and what is live then: a report's, without the rest."""
    summary = _Summary(schedule, options, placement)
    return summary.peak(), summary.breakdown()


_PER_PARAMETER = (Category.GRADIENTS, Category.OPTIMIZER_STATES)


class _Summary:
    """The numbers that several parts of a report share."""

    def __init__(
        self, schedule: Schedule, options: Options, placement: Placement | None = None
    ) -> None:
        self.schedule = schedule
        self.options = options
        self.is_on_gpu = options.target is Target.CUDA
        self.is_placed = self.is_on_gpu or placement is not None
        self.gpu = gpu_of(options) if self.is_on_gpu and options.device is not None else None
        self.is_given = placement is not None
        self.placement = placement or placement_of(schedule, options)
        scratch = self.placement.scratch_bytes
        self.live = liveness.measure(schedule, self.size, scratch=scratch)

    @cached_property
    def at_peak(self) -> list[Storage]:
        """The storages that live at the peak."""
        return liveness.live_at(self.schedule, self.live.peak_index)

    @property
    def last_use_peak_bytes(self) -> int:
        """The peak if every storage died at its last use."""
        scratch = self.placement.scratch_bytes
        return liveness.measure(self.schedule, self.size, Lifetimes.LAST_USE, scratch).peak_bytes

    def size(self, storage: Storage) -> int:
        """The bytes of a storage's block."""
        return self.placement.block_bytes[storage.id]

    def requested(self, storage: Storage) -> int:
        """The bytes that were asked for."""
        return storage.nbytes if self.size(storage) else 0

    def reserved(self, index: int) -> int | None:
        """The bytes reserved while an operation runs; None where no allocator is modelled."""
        return self.placement.reserved_bytes[index] if self.is_placed else None

    def report(
        self,
        subject: Subject,
        created_from: Mapping[str, Any],
        torch_version: str,
        timeline: bool,
    ) -> Report:
        at = self.live.peak_index
        return Report(
            subject=subject,
            created_from=created_from,
            peak=self.peak(),
            steps=tuple(self.steps()),
            breakdown=self.breakdown(),
            layers=tuple(self.layers()),
            holders=tuple(self.holders()),
            unknown=tuple(
                UnknownItem(u.what, u.where, u.assumed, u.bytes) for u in self.schedule.unknown
            ),
            idle_bytes=sum(self.size(s) for s in liveness.idle(self.at_peak, at)),
            last_use_peak_bytes=self.last_use_peak_bytes,
            graphmem=graphmem.__version__,
            torch=torch_version,
            timeline=self.timeline() if timeline else None,
            kernels=tuple(Kernel(c.op, c.kernel, c.why, c.calls) for c in self.schedule.choices),
            device=None if self.gpu is None else _device(self.gpu),
            fits=self.fits(),
            growth=tuple(self.growth()),
            copies=tuple(self.copies()),
            recomputation=recomputation.find(self.schedule, self.size),
            host=self.host(),
            ask_history=partial(
                history_of,
                self.schedule,
                self.options,
                self.placement,
                is_given=self.is_given,
            ),
        )

    def fits(self) -> Fits:
        """The answer for the GPU that was named, and how to have others."""
        ask = partial(ask_fit, self.schedule, self.options) if self.is_on_gpu else None
        if self.gpu is None:
            return Fits(ask=ask)
        same = None if self.options.headroom else self.placement  # which leaves none out
        fit = fit_on(self.schedule, self.options, self.gpu, same)
        return Fits({self.gpu.name: fit}, ask)

    def peak(self) -> Peak:
        op = self.schedule.operations[self.live.peak_index]
        requested = liveness.measure(self.schedule, self.requested)
        reserved = max(self.placement.reserved_bytes)
        return Peak(
            requested_bytes=requested.peak_bytes,
            allocated_bytes=self.live.peak_bytes,
            reserved_bytes=reserved if self.is_placed else None,
            device_bytes=None if self.gpu is None else _device_bytes(reserved, self.gpu),
            step=op.step,
            phase=str(op.phase),
            op=op.target,
            op_index=op.index,
            module=op.module,
            source=op.source,
        )

    def breakdown(self) -> dict[str, int]:
        total = dict.fromkeys(BREAKDOWN, 0)
        for storage in self.at_peak:
            requested = self.requested(storage)
            total[str(storage.category)] += requested
            total["allocator_slack"] += self.size(storage) - requested
        at = self.live.peak_index
        requested = self.schedule.operations[at].scratch_bytes
        total["workspaces"] += requested
        total["allocator_slack"] += self.placement.scratch_bytes[at] - requested
        return total

    def holders(self) -> list[Holder]:
        largest = sorted(self.at_peak, key=lambda s: (-self.size(s), s.id))[:HOLDERS]
        return [self._holder(s) for s in largest if self.size(s)]

    def _holder(self, storage: Storage) -> Holder:
        is_idle = liveness.is_idle(storage, self.live.peak_index)
        return Holder(
            bytes=self.size(storage),
            shape=storage.shape,
            dtype=storage.dtype,
            category=str(storage.category),
            op=storage.op,
            module=storage.module,
            source=storage.source,
            born=storage.born,
            last_use=storage.last_use,
            freed=storage.freed,
            idle_bytes=self.size(storage) if is_idle else 0,
        )

    def growth(self) -> Iterator[GrowthItem]:
        """What grows, in the bytes of this target's blocks."""
        for found in self.schedule.growths:
            root = self.schedule.storages[found.root]
            blocks = self._sizes(found.storages)
            nbytes = min(found.nbytes, blocks) if found.kind is Growing.CACHE else blocks
            if nbytes:
                yield GrowthItem(
                    kind=str(found.kind),
                    per="step" if found.each_step else "turn",
                    bytes=nbytes,
                    tensors=len(found.storages),
                    times=found.times,
                    holder=found.holder,
                    shape=root.shape,
                    dtype=root.dtype,
                    op=root.op,
                    module=root.module,
                    source=root.source,
                )

    def copies(self) -> Iterator[CopyItem]:
        """The copies of parameters or gradients that are live at the peak."""
        for copy in copies.find(self.schedule, self.at_peak):
            nbytes, count = self._sizes(copy.storages), len(copy.storages)
            yield CopyItem(str(copy.of), nbytes, count, copy.count, copy.holder, copy.source)

    def host(self) -> HostItem | None:
        """What lies on the host, where something is offloaded from a GPU."""
        if not techniques.parts(self.options.offload) or not self.is_on_gpu:
            return None
        return host_bytes(self.schedule, pinned=self.options.pin_memory)

    def _sizes(self, storages: Iterable[int]) -> int:
        return sum(self.size(self.schedule.storages[i]) for i in storages)

    def layers(self) -> list[Layer]:
        """One row for every module, and for whatever else holds bytes."""
        held, saved, sums = self._bytes_by_module()
        peaks = _phase_peaks(self.schedule, self.live)
        named = {m.path: m for m in self.schedule.modules}
        used = {*held, *saved, *(path for path, _ in sums), *(path for path, _ in peaks)}
        paths = [*named, *sorted(used - named.keys())]
        return [
            _layer(named.get(path) or Module(path, "", 0, 0, 0, 0), held, saved, sums, peaks)
            for path in paths
        ]

    def _bytes_by_module(
        self,
    ) -> tuple[dict[str, int], dict[str, int], dict[tuple[str, Category], int]]:
        held: dict[str, int] = defaultdict(int)
        for storage in self.at_peak:
            if self.size(storage):
                held[storage.module] += self.size(storage)
        scratch = self.placement.scratch_bytes[self.live.peak_index]
        if scratch:
            held[self.schedule.operations[self.live.peak_index].module] += scratch
        saved = self._saved_by_module()
        sums = _most_live(
            (
                ((storage.module, storage.category), storage, self.size(storage))
                for storage in self.schedule.storages
                if storage.category in _PER_PARAMETER
            ),
            replaced=True,
        )
        return held, saved, sums

    def _saved_by_module(self) -> dict[str, int]:
        """What each module's operations keep for backward, of the step in which that is most.

        An output may outlive its step: it is no part of what the next one keeps.
        """
        most = _most_live(
            ((storage.saved_by, step), storage, self.size(storage))
            for storage in self.schedule.storages
            if storage.saved_by is not None and _is_activation(storage)
            for step in self._steps_of(storage)
        )
        saved: dict[str, int] = defaultdict(int)
        for (path, _), nbytes in most.items():
            saved[path] = max(saved[path], nbytes)
        return saved

    def _steps_of(self, storage: Storage) -> Iterable[int]:
        """The step that makes a storage; all steps for one that was there before."""
        if storage.born == BEFORE:
            return range(1, self.schedule.steps + 1)
        return (self.schedule.operations[storage.born].step,)

    def steps(self) -> Iterator[Step]:
        """Each step's own peaks."""
        phases: dict[int, dict[str, int]] = defaultdict(dict)
        reserved: dict[int, int] = defaultdict(int)
        for op, nbytes in zip(self.schedule.operations, self.live.live_bytes, strict=True):
            own = phases[op.step]
            own[str(op.phase)] = max(own.get(str(op.phase), 0), nbytes)
            reserved[op.step] = max(reserved[op.step], self.reserved(op.index) or 0)
        for step, own in sorted(phases.items()):
            yield Step(
                step=step,
                allocated_bytes=max(own.values()),
                reserved_bytes=reserved[step] if self.is_placed else None,
                phases={str(phase): own.get(str(phase)) for phase in Phase},
            )

    def timeline(self) -> tuple[TimelinePoint, ...]:
        return tuple(
            TimelinePoint(
                op.index, str(op.phase), op.target, op.module, nbytes, self.reserved(op.index)
            )
            for op, nbytes in zip(self.schedule.operations, self.live.live_bytes, strict=True)
        )


Key = TypeVar("Key")


def _most_live(
    held: Iterable[tuple[Key, Storage, int]], *, replaced: bool = False
) -> dict[Key, int]:
    """For each key the most bytes that its storages hold at one time.

    What is made anew in every step or micro-batch counts once; with ``replaced`` also
    where the old one lives until the operation that makes the new one.
    """
    changes: dict[Key, list[tuple[int, int]]] = defaultdict(list)
    for key, storage, nbytes in held:
        changes[key].append((storage.born, nbytes))
        if storage.freed is not None:
            changes[key].append((storage.freed + (not replaced), -nbytes))
    return {
        key: max(accumulate(change for _, change in sorted(events)))
        for key, events in changes.items()
    }


def _is_activation(storage: Storage) -> bool:
    return storage.category in (Category.SAVED_FOR_BACKWARD, Category.OUTPUTS, Category.INPUTS)


def _layer(
    module: Module,
    held: Mapping[str, int],
    saved: Mapping[str, int],
    sums: Mapping[tuple[str, Category], int],
    peaks: Mapping[tuple[str, Phase], int],
) -> Layer:
    path = module.path
    return Layer(
        module=path,
        type=module.type,
        calls=module.calls,
        parameters=module.parameters,
        parameter_bytes=module.parameter_bytes,
        output_bytes=module.output_bytes,
        saved_bytes=saved.get(path, 0),
        gradient_bytes=sums.get((path, Category.GRADIENTS), 0),
        optimizer_bytes=sums.get((path, Category.OPTIMIZER_STATES), 0),
        forward_peak_bytes=peaks.get((path, Phase.FORWARD)),
        backward_peak_bytes=peaks.get((path, Phase.BACKWARD)),
        live_at_peak_bytes=held.get(path, 0),
    )


def _phase_peaks(schedule: Schedule, live: Liveness) -> dict[tuple[str, Phase], int]:
    peaks: dict[tuple[str, Phase], int] = {}
    for op, nbytes in zip(schedule.operations, live.live_bytes, strict=True):
        key = (op.module, op.phase)
        peaks[key] = max(peaks.get(key, 0), nbytes)
    return peaks


def _device(gpu: Gpu) -> dict[str, Any]:
    return {"name": gpu.name, "arch": gpu.arch, "capacity_bytes": gpu.capacity_bytes}


def _device_bytes(reserved: int, gpu: Gpu) -> tuple[int, int]:
    """What nvidia-smi shows: the reserved bytes, and the least and the most of the context."""
    low, high = gpu.context_bytes
    return reserved + low, reserved + high
