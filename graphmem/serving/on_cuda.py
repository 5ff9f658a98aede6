"""A session of ONNX Runtime's CUDA provider, simulated: what its arena holds of the GPU.

What can't be known is simulated at its ends: the order in which weights are taken, which is
another in each process, and the workspaces of convolutions, from none to the largest that
cuDNN may ask for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from graphmem.allocator.bfc import ArenaOutOfMemoryError, ArenaSettings
from graphmem.devices import Gpu
from graphmem.errors import UnsupportedOpError
from graphmem.fits import gpu_of
from graphmem.options import Options
from graphmem.ort import Run, Setup, simulate
from graphmem.schedule import Unknown
from graphmem.serving.assemble import Assembled
from graphmem.serving.cuda_scratch import CudaScratch, Pick
from graphmem.serving.handles import handles_unknown
from graphmem.serving.on_device import OnDevice, on_device
from graphmem.serving.settings import ServeSettings
from graphmem.sources.onnx.model import Model
from graphmem.targets.cuda.cudnn.library import Library, Missing, load


@dataclass(frozen=True, slots=True)
class Shortage:
    """Where a session runs out of memory: a request of ``nbytes``, in a run at a kernel.

    ``run`` counts from 0 and ``moment`` in it; None: before the first run.
    """

    nbytes: int
    run: int | None
    moment: int | None


@dataclass(frozen=True, slots=True)
class OnCuda:
    """The session, its runs without any limit, and where one ends it.

    ``held`` is the least and the most that the arena takes of the GPU. ``limited`` is the
    shortage under ``gpu_mem_limit``, ``full`` that of the GPU; None where there is none.
    """

    assembled: Assembled
    runs: tuple[Run, ...]
    held: tuple[int, int]
    gpu: Gpu
    limited: Shortage | None
    full: Shortage | None
    host: frozenset[str]
    unknown: tuple[Unknown, ...]


def serve_on_cuda(
    assembled: Assembled,
    model: Model,
    options: Options,
    settings: ServeSettings,
    numbers: Mapping[tuple[str, ...], int],
) -> OnCuda:
    """The session of a model that was assembled for the CPU provider.

    Args:
        assembled: the model with one run's sizes.
        model: the same as plain data.
        options: those of the analysis.
        settings: those of ONNX Runtime.
        numbers: the index in ONNX Runtime's graph of each node, by its outputs.

    Raises:
        UnsupportedOpError: something can't be known, and nothing is to be assumed.
    """
    session = _Session(assembled, model, settings, gpu_of(options), numbers)
    part, scratch = session.part(Pick.FIRST)
    setup = part.assembled.setup
    runs, limited = session.under(part, setup, settings.run.arena)
    low, high = session.range(max(run.held for run in runs))
    unknown = tuple(session.notes(part, scratch, (low, high), options))
    if options.strict and unknown:
        first = unknown[0]
        raise UnsupportedOpError(
            f"{model.path}: {first.what} ({first.where}) is not known; without --strict it is "
            f"taken to be {first.assumed}"
        )
    return OnCuda(
        part.assembled,
        runs,
        (low, high),
        session.gpu,
        limited,
        session.shortage(part, setup, options),
        part.host,
        unknown,
    )


@dataclass(slots=True)
class _Session:
    whole: Assembled
    model: Model
    settings: ServeSettings
    gpu: Gpu
    numbers: Mapping[tuple[str, ...], int]

    def part(self, pick: Pick) -> tuple[OnDevice, CudaScratch]:
        """The device's part, with workspaces as ``CudaScratch.pick`` says."""
        scratch = CudaScratch(self.gpu, self.settings.cuda, pick)
        reserve = self.settings.cuda.reserve_weights
        made = on_device(self.whole, self.model, scratch, numbers=self.numbers, reserve=reserve)
        return made, scratch

    def simulated(
        self, part: OnDevice, setup: Sequence[Setup], arena: ArenaSettings
    ) -> tuple[Run, ...]:
        """The runs with an arena.

        Raises:
            ArenaOutOfMemoryError: it is too small.
        """
        executions = [part.assembled.execution] * self.settings.runs
        return tuple(simulate(executions, replace(self.settings.run, arena=arena), setup))

    def under(
        self, part: OnDevice, setup: Sequence[Setup], arena: ArenaSettings
    ) -> tuple[tuple[Run, ...], Shortage | None]:
        """The runs, and where the limit ends them: then they are those without one."""
        try:
            return self.simulated(part, setup, arena), None
        except ArenaOutOfMemoryError as error:
            unlimited = replace(arena, limit=None)
            shortage = Shortage(error.nbytes, error.run, error.moment)
            return self.simulated(part, setup, unlimited), shortage

    def shortage(self, part: OnDevice, setup: Sequence[Setup], options: Options) -> Shortage | None:
        """Where the GPU itself has no more room, beside a context of the largest size seen."""
        room = self.gpu.capacity_bytes - self.gpu.context_bytes[1] - (options.headroom or 0)
        arena = replace(self.settings.run.arena, capacity=max(room, 0), limit=None)
        try:
            self.simulated(part, setup, arena)
        except ArenaOutOfMemoryError as error:
            return Shortage(error.nbytes, error.run, error.moment)
        return None

    def range(self, held: int) -> tuple[int, int]:
        """The least and the most that the arena holds in trials of what can't be known.

        Weights come smallest first, and largest first: other orders can lie outside.
        """
        found = [held]
        for pick, backwards in product(Pick, (False, True)):
            part, scratch = self.part(pick)
            if pick is Pick.FIRST or scratch.convolutions:
                setup = sorted(part.assembled.setup, key=lambda s: s.nbytes, reverse=backwards)
                runs, _ = self.under(part, setup, self.settings.run.arena)
                found.append(max(run.held for run in runs))
        return min(found), max(found)

    def notes(
        self, part: OnDevice, scratch: CudaScratch, held: tuple[int, int], options: Options
    ) -> Iterator[Unknown]:
        """What the report says of what is not known."""
        if part.assembled.held and not self.settings.cuda.reserve_weights:
            yield Unknown(
                "the order in which ONNX Runtime takes weights into the arena: another in each "
                "process",
                f"{len(part.assembled.held)} weights",
                "the file's; with the smallest or the largest first, and other workspaces, the "
                f"arena holds {_span(held)}: no bounds, other orders can lie outside",
            )
        if scratch.convolutions:
            yield self._workspaces(scratch, held)
        yield from scratch.notes(part.device)
        if options.device is not None:
            yield handles_unknown(self.gpu)
        yield from self._settings_not_planned()

    def _workspaces(self, scratch: CudaScratch, held: tuple[int, int]) -> Unknown:
        library = scratch.not_asked or load()
        why = library.reason if isinstance(library, Missing) else f"asked of {library.name}"
        asked = isinstance(library, Library) and scratch.not_asked is None
        assumed = "the first plan that its heuristics rank" if asked else "as --target cuda does"
        return Unknown(
            f"the workspaces of convolutions: {why}, where the one that serves may differ",
            f"{scratch.convolutions} convolutions on {self.gpu.name}",
            f"{assumed}; from none to the largest of any plan, the arena holds {_span(held)}",
        )

    def _settings_not_planned(self) -> Iterator[Unknown]:
        if self.settings.cuda.prefer_nhwc:
            yield Unknown(
                "what prefer_nhwc makes of the graph: transposes, and weights turned",
                "the whole graph",
                "the layout of the file",
            )
        if self.settings.cuda.cuda_graph:
            yield Unknown(
                "what a captured CUDA graph keeps (enable_cuda_graph)",
                "the whole graph",
                "nothing besides the arena",
            )


def _span(held: tuple[int, int]) -> str:
    return f"{held[0]:,} to {held[1]:,} bytes"
