"""The versions that decide what CUDA runs: of torch, and of the cuDNN that belongs to it."""

from __future__ import annotations

from functools import cache

import torch

_major, _minor, *_ = torch.__version__.split(".")
TORCH_VERSION = (int(_major), int(_minor))
"""Major and minor: ``(2, 14)``."""

_CUDNN_OF_WHEELS = {(2, 13): 92000, (2, 14): 92400}
"""What the CUDA 13.0 wheels of a torch release require (their metadata, nvidia-cudnn-cu13)."""


@cache
def cudnn_version() -> int:
    """As ``torch.backends.cudnn.version()`` gives it: 92400 for 9.24.0.

    Beside a CPU build of torch, that of the same release's CUDA wheels. Asked where it is
    needed: a CUDA build loads the library for it, 50 MiB.
    """
    return torch.backends.cudnn.version() or _CUDNN_OF_WHEELS.get(
        TORCH_VERSION, max(_CUDNN_OF_WHEELS.values())
    )
