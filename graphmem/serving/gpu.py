"""What a report says of the GPU that a session with the CUDA provider runs on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from graphmem.options import Options
from graphmem.ort import Run
from graphmem.report import Fit, Fits, OutOfMemory, Report
from graphmem.schedule import BEFORE, TOP_LEVEL, Phase
from graphmem.serving.handles import cublas_bytes
from graphmem.serving.on_cuda import OnCuda, Shortage
from graphmem.sources.onnx.names import module_path

LIMIT = "gpu_mem_limit"
"""The name that the answer on the provider's own limit stands under."""


def device_bytes(cuda: OnCuda) -> tuple[int, int]:
    """What nvidia-smi shows: the arena, the context, and the workspaces of cuBLAS.

    ONNX Runtime makes a handle for the provider and one for its stream; a handle takes its
    workspace at its first product, outside of the arena.
    Source: ``CUDAExecutionProvider::PerThreadContext`` and ``CudaStream`` in
    onnxruntime/core/providers/cuda.
    """
    low, high = cuda.gpu.context_bytes
    return cuda.held[0] + low, cuda.held[1] + high + 2 * cublas_bytes(cuda.gpu)


def on_gpu(report: Report, cuda: OnCuda, options: Options, limit: int | None) -> Report:
    """The report with the GPU's part: ``device_bytes``, and whether it fits.

    Args:
        report: the report without it.
        cuda: the session.
        options: those of the analysis; a GPU is answered for where one is named.
        limit: ``gpu_mem_limit`` in bytes.
    """
    fits = {fit.device: fit for fit in _fits(cuda, options, limit)}
    if options.device is None:
        return replace(report, fits=Fits(fits))
    gpu = cuda.gpu
    return replace(
        report,
        peak=replace(report.peak, device_bytes=device_bytes(cuda)),
        device={"name": gpu.name, "arch": gpu.arch, "capacity_bytes": gpu.capacity_bytes},
        fits=Fits(fits),
    )


def _fits(cuda: OnCuda, options: Options, limit: int | None) -> Iterator[Fit]:
    held = max(run.held for run in cuda.runs)
    if limit is not None:
        yield _fit(cuda, LIMIT, limit - held, cuda.limited)
    if options.device is not None:
        room = cuda.gpu.capacity_bytes - cuda.gpu.context_bytes[1] - options.headroom
        yield _fit(cuda, cuda.gpu.name, room - held, cuda.full)


def _fit(cuda: OnCuda, name: str, spare: int, shortage: Shortage | None) -> Fit:
    """The answer for a limit that leaves so many bytes."""
    notes = []
    if shortage is None and spare < 0:
        notes.append("the arena grows in smaller regions there than it would without a limit")
    return Fit(
        device=name,
        fits=shortage is None,
        headroom_bytes=min(spare, 0) if shortage is not None else max(spare, 0),
        out_of_memory_at=None if shortage is None else _moment(cuda.runs, shortage),
        notes=tuple(notes),
    )


def _moment(runs: tuple[Run, ...], shortage: Shortage) -> OutOfMemory:
    if shortage.run is None or shortage.moment is None:
        return OutOfMemory(None, None, None, BEFORE, TOP_LEVEL, None, shortage.nbytes)
    run = runs[shortage.run]
    at = min(shortage.moment, len(run.moments) - 1)
    moment = run.moments[at]
    before = sum(len(one.moments) for one in runs[: shortage.run])
    return OutOfMemory(
        step=shortage.run + 1,
        phase=str(Phase.FORWARD),
        op=moment.op,
        op_index=before + at,
        module=module_path(moment.node or moment.op),
        source=None,
        requested_bytes=shortage.nbytes,
    )
