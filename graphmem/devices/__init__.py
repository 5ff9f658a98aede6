"""GPUs: what CUDA and PyTorch say of them, and what a process needs beside the allocator.

``GPUS`` are all that are known, ``find`` gives one by its name, ``DEFAULT`` is the one
whose kernels are assumed where the user names none.
"""

from graphmem.devices.gpu import Gpu
from graphmem.devices.names import find_gpu
from graphmem.devices.table import load_gpus

__all__ = ["DEFAULT", "GPUS", "Gpu", "find"]

GPUS: tuple[Gpu, ...] = load_gpus()


def find(name: str) -> Gpu:
    """The GPU of a name: ``"A100-80GB"``, ``"4090"``, ``"NVIDIA A100-SXM4-80GB"``.

    Case, spaces and hyphens do not count. See ``names.find_gpu``.

    Raises:
        UsageError: for an unknown name, with the nearest ones, and for one that several GPUs
            share, with theirs.
    """
    return find_gpu(name, GPUS)


DEFAULT: Gpu = find("A100-80GB")
