"""What the handles of cuBLAS and cuDNN hold of the GPU, outside of ONNX Runtime's arena."""

from __future__ import annotations

from graphmem.as_text import format_bytes
from graphmem.devices import Gpu
from graphmem.schedule import Unknown

_HOPPER = 90
_MIB = 1 << 20


def cublas_bytes(gpu: Gpu) -> int:
    """What cuBLAS takes of the GPU for a handle that nobody gave a workspace.

    Source: NVIDIA cuBLAS, ``CUBLAS_WORKSPACE_CONFIG``: by default 2 buffers of 4 MiB and 8 of
    16 KiB; 32 MiB from Hopper on.
    """
    return 32 * _MIB if gpu.sm >= _HOPPER else 2 * 4 * _MIB + 8 * 16 * 1024


def handles_unknown(gpu: Gpu) -> Unknown:
    """That it is not known what cuBLAS and cuDNN have beside the arena."""
    return Unknown(
        "what cuBLAS and cuDNN hold beside the arena, for their handles",
        gpu.name,
        f"none to two workspaces of {format_bytes(cublas_bytes(gpu))}, in device_bytes alone",
    )
