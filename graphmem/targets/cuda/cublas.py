"""cuBLAS: a workspace for every thread that multiplies matrices.

The first matrix product of a thread makes a handle, and with it a workspace from the
caching allocator that stays. The engine's backward runs on a thread of its own, so there
are two from the first backward on. cuBLASLt shares it.

Source: aten/src/ATen/cuda/CublasHandlePool.cpp, ``getCurrentCUDABlasHandle`` and
``parseChosenWorkspaceSize`` (torch 2.13 and 2.14); seen in the snapshots of
shared/truth (two blocks of 8,519,680 bytes; one of 33,554,432 on SM 9.0).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch

from graphmem.devices import Gpu
from graphmem.errors import UsageError

aten = torch.ops.aten

USES_CUBLAS = frozenset(
    {
        aten.mm.default,
        aten.addmm.default,
        aten._addmm_activation.default,
        aten.bmm.default,
        aten.baddbmm.default,
        aten.addbmm.default,
        aten.mv.default,
        aten.addmv.default,
        aten.dot.default,
        aten.vdot.default,
    }
)
"""Operators whose CUDA kernels take the cuBLAS handle."""

DEFAULT_CONFIG = ":4096:2:16:8"
LARGE_CONFIG = ":32768:1"
"""The default where the major compute capability is one of ``LARGE_MAJORS``: 32 MiB."""
LARGE_MAJORS = (9, 10, 12)


def workspace_bytes(gpu: Gpu, environment: Mapping[str, str]) -> int:
    """The size of a workspace on a GPU, in bytes.

    ``CUBLAS_WORKSPACE_CONFIG`` is a list of ``:SIZE:COUNT``, SIZE in KiB; it overrides the
    default of the architecture.

    Raises:
        UsageError: if it can't be read.
    """
    default = LARGE_CONFIG if gpu.compute_capability[0] in LARGE_MAJORS else DEFAULT_CONFIG
    config = environment.get("CUBLAS_WORKSPACE_CONFIG", default)
    if not re.fullmatch(r"(:\d+:\d+)+", config):
        raise UsageError(
            f"CUBLAS_WORKSPACE_CONFIG={config}: write :SIZE:COUNT, SIZE in KiB, as {DEFAULT_CONFIG}"
        )
    pairs = re.findall(r":(\d+):(\d+)", config)
    return sum(int(size) * 1024 * int(count) for size, count in pairs)
