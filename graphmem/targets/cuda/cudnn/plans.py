"""Which plan PyTorch runs for a convolution, and the workspace that cuDNN asks for it.

1. cuDNN's heuristics rank engine configurations (mode INSTANT, or B with
   ``TORCH_CUDNN_USE_HEURISTIC_MODE_B``).
2. Those that PyTorch does not take are left out: the non-deterministic in deterministic
   mode, those that convert inputs down, and for fp32 those on tensor cores unless TF32 is
   allowed.
3. The first whose plan can be built is taken; if there is none, of cuDNN's fallback list.
4. In benchmark mode all plans of both lists run, in the largest of their workspaces.

Not covered: a plan that is built and then fails to run, ``CUDNN_ERRATA_JSON_FILE``, and
engines that compile their kernels when they run. cuDNN offers those where it finds a CUDA
driver only; they are left out everywhere, so that the answer does not depend on the machine.
Of 795 random convolutions for six GPUs, 26 would have had one ranked first (mostly gradients
of filters in half precision; none of ResNet's 192). ``CUDNN_CONV_WSCAP_DBG`` changes nothing
here: under a cap of 1 MiB cuDNN 9.24 asked for the same 163,053,712 bytes.
Source: aten/src/ATen/native/cudnn/Conv_v8.cpp (``run_single_conv``, ``filterEngineConfigs``,
``try_configs``, ``generate_and_filter_plans``) and cudnn_frontend_EngineFallbackList.h.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cache

import torch

from graphmem.devices import Gpu
from graphmem.devices.attributes import attributes
from graphmem.targets.cuda.cudnn import backend
from graphmem.targets.cuda.cudnn.backend import CudnnError, Descriptor, Kind, Session
from graphmem.targets.cuda.cudnn.library import Library


class Mode(IntEnum):
    """``cudnnBackendHeurMode_t``."""

    INSTANT = 0
    B = 1
    FALLBACK = 2


class Note(IntEnum):
    """``cudnnBackendNumericalNote_t``: what an engine does to numbers."""

    TENSOR_CORE = 0
    DOWN_CONVERT_INPUTS = 1
    NONDETERMINISTIC = 4


RUNTIME_COMPILATION = 0
"""``CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION``. No engine whose plan was built without a driver
has it (0 of 6,583), all that need one do (33 of 33)."""

DATA_TYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 9}
"""``cudnnDataType_t``."""

_CROSS_CORRELATION = 1

_OPERATION_ATTRIBUTES = {
    # alpha, beta, convolution, w, x or its gradient, y or its gradient
    Kind.FORWARD: (700, 701, 702, 703, 704, 705),
    Kind.DATA_GRADIENT: (706, 707, 708, 709, 710, 711),
    Kind.FILTER_GRADIENT: (712, 713, 714, 715, 716, 717),
}


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor as cuDNN sees it; strides in elements, ``alignment`` of its address in bytes."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    alignment: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One convolution: x [N, C, ...], w [K, C / groups, ...], y [N, K, ...].

    ``kind`` says which of them is computed from the other two; ``padding``, ``stride`` and
    ``dilation`` have one number a spatial dimension.
    """

    kind: Kind
    x: Operand
    w: Operand
    y: Operand
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    dtype: torch.dtype
    allow_tf32: bool = True
    deterministic: bool = False
    mode: Mode = Mode.INSTANT


@cache
def workspace(library: Library, gpu: Gpu, problem: Problem) -> int | None:
    """The bytes of the first plan that can be built; None if no engine supports it."""
    return next(_sizes(library, gpu, problem), None)


@cache
def largest_workspace(library: Library, gpu: Gpu, problem: Problem) -> int:
    """The bytes of the largest plan that benchmark mode tries and that fits on the GPU."""
    sizes = _sizes(library, gpu, problem)
    return max((size for size in sizes if size <= gpu.capacity_bytes), default=0)


def _sizes(library: Library, gpu: Gpu, problem: Problem) -> Iterator[int]:
    """The workspaces of the plans that can be built, in PyTorch's order."""
    with Session(library) as session:
        device = _device(library, gpu)
        graph = _graph(session, problem)
        for mode in (problem.mode, Mode.FALLBACK):
            for config in _configs(session, graph, device, mode):
                if not _left_out(session, config, problem):
                    yield from _built(session, config, device)


@cache
def _device(library: Library, gpu: Gpu) -> Descriptor:
    """The GPU, for all sessions."""
    text = json.dumps(attributes(gpu)).encode()
    device = Session(library).make(Kind.DEVICE)
    return device.set(2702, backend.CHAR, *(bytes([byte]) for byte in text)).finalized()


def _graph(session: Session, problem: Problem) -> Descriptor:
    data_type = DATA_TYPES[problem.dtype]
    scalar = backend.DOUBLE if problem.dtype is torch.float64 else backend.FLOAT
    alpha, beta, convolution, w, x, y = _OPERATION_ATTRIBUTES[problem.kind]
    operation = (
        session.make(problem.kind)
        .set(convolution, backend.DESCRIPTOR, _convolution(session, problem))
        .set(x, backend.DESCRIPTOR, _tensor(session, problem.x, "x", data_type))
        .set(w, backend.DESCRIPTOR, _tensor(session, problem.w, "w", data_type))
        .set(y, backend.DESCRIPTOR, _tensor(session, problem.y, "y", data_type))
        .set(alpha, scalar, 1.0)
        .set(beta, scalar, 0.0)
        .finalized()
    )
    return session.make(Kind.GRAPH).set(801, backend.DESCRIPTOR, operation).finalized()


def _convolution(session: Session, problem: Problem) -> Descriptor:
    """Half precision is summed in fp32 (``getConvDescriptor``)."""
    half = problem.dtype in (torch.float16, torch.bfloat16)
    compute = DATA_TYPES[torch.float32 if half else problem.dtype]
    return (
        session.make(Kind.CONVOLUTION)
        .set(100, backend.DATA_TYPE, compute)
        .set(101, backend.CONVOLUTION_MODE, _CROSS_CORRELATION)
        .set(106, backend.INT64, len(problem.stride))
        .set(102, backend.INT64, *problem.dilation)
        .set(103, backend.INT64, *problem.stride)
        .set(104, backend.INT64, *problem.padding)  # after
        .set(105, backend.INT64, *problem.padding)  # before
        .finalized()
    )


def _tensor(session: Session, operand: Operand, name: str, data_type: int) -> Descriptor:
    return (
        session.make(Kind.TENSOR)
        .set(901, backend.DATA_TYPE, data_type)
        .set(902, backend.INT64, *operand.size)
        .set(903, backend.INT64, *operand.stride)
        .set(906, backend.INT64, ord(name))
        .set(900, backend.INT64, operand.alignment)
        .set(907, backend.BOOLEAN, False)
        .finalized()
    )


def _configs(
    session: Session, graph: Descriptor, device: Descriptor, mode: Mode
) -> Iterator[Descriptor]:
    """Engine configurations, best first; none if the heuristics do not know the graph.

    The first is nearly always the one, and costs a tenth of asking for all.
    """
    heuristics = (
        session.make(Kind.HEURISTICS)
        .set(201, backend.DESCRIPTOR, graph)
        .set(200, backend.HEURISTICS_MODE, int(mode))
        .set(204, backend.DESCRIPTOR, device)
    )
    try:
        heuristics.finalized()
    except CudnnError:
        return
    count = heuristics.count(202, backend.DESCRIPTOR)
    yield from heuristics.fill(
        202, [session.make(Kind.ENGINE_CONFIG) for _ in range(min(1, count))]
    )
    if count > 1:
        every = heuristics.fill(202, [session.make(Kind.ENGINE_CONFIG) for _ in range(count)])
        yield from every[1:]


def _left_out(session: Session, config: Descriptor, problem: Problem) -> bool:
    (engine,) = config.fill(300, [session.make(Kind.ENGINE)])
    if RUNTIME_COMPILATION in _notes(engine, 1305, backend.BEHAVIOR_NOTE):
        return True
    notes = _notes(engine, 1303, backend.NUMERICAL_NOTE)
    if problem.deterministic and Note.NONDETERMINISTIC in notes:
        return True
    if Note.DOWN_CONVERT_INPUTS in notes:
        return True
    exact = problem.dtype is torch.float32 and not problem.allow_tf32
    return exact and Note.TENSOR_CORE in notes


def _notes(engine: Descriptor, attribute: int, value: backend.Value) -> list[int]:
    count = engine.count(attribute, value)
    return engine.get(attribute, value, count) if count else []


def _built(session: Session, config: Descriptor, device: Descriptor) -> Iterator[int]:
    """The plan's workspace, if the plan can be built."""
    plan = session.make(Kind.PLAN).set(401, backend.DESCRIPTOR, config)
    plan.set(407, backend.DESCRIPTOR, device)
    try:
        plan.finalized()
    except CudnnError:
        return
    yield from plan.get(402, backend.INT64)
