"""Finding and loading the cuDNN library that the user's torch would run.

A CUDA build of torch brings it. Beside a CPU build the wheel ``nvidia-cudnn-cu13`` (extra
``cudnn``) holds it alone; the same version gives the same bytes.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch

NAMES = ("libcudnn.so.9", "cudnn64_9.dll")
_CUBLASLT = ("libcublasLt.so.*", "cublasLt64_*.dll")

OLDEST = 91900
"""The oldest version that is asked. Describing a GPU needs 9.8 (cudnn_graph.h,
CUDNN_ATTR_ENGINEHEUR_DEVICEPROP); 9.10.2 ends the process when it is asked for SM 10.0
without a GPU, 9.19 answers for SM 7.5 to 12.1 (measured)."""


@dataclass(frozen=True, slots=True)
class Library:
    """A loaded cuDNN; ``version`` is 92400 for 9.24.0, ``cuda`` 13000 for CUDA 13.0."""

    functions: ctypes.CDLL
    version: int
    cuda: int

    @property
    def name(self) -> str:
        """``"cuDNN 9.24.0"``."""
        major, rest = divmod(self.version, 10000)
        return f"cuDNN {major}.{rest // 100}.{rest % 100}"

    @property
    def oldest_sm(self) -> int:
        """The oldest architecture that it has kernels for.

        Source: NVIDIA cuDNN, "Support Matrix": built for CUDA 13, from Turing on.
        """
        return 75 if self.cuda >= 13000 else 50


@dataclass(frozen=True, slots=True)
class Missing:
    """Why no library can be asked, and what the user may do."""

    reason: str


@cache
def load() -> Library | Missing:
    """The library, loaded once a process."""
    path = _path()
    if path is None:
        return Missing("no cuDNN library is installed (pip install 'graphmem[cudnn]')")
    if not _cublaslt_loads(path):
        return Missing(f"{path.name} needs cuBLASLt (pip install nvidia-cublas)")
    try:
        functions = ctypes.CDLL(str(path))
    except OSError as error:
        return Missing(f"{path.name} can't be loaded: {error}")
    functions.cudnnGetVersion.restype = ctypes.c_size_t
    functions.cudnnGetCudartVersion.restype = ctypes.c_size_t
    library = Library(functions, functions.cudnnGetVersion(), functions.cudnnGetCudartVersion())
    if library.version < OLDEST:
        return Missing(f"{library.name} is older than 9.19, the first that can be asked")
    return library


def _path() -> Path | None:
    """The library's file: of NVIDIA's wheel, or in torch's own folder."""
    files = (folder / name for folder in _folders() for name in NAMES)
    return next((file for file in files if file.is_file()), None)


def _folders() -> Iterator[Path]:
    yield from _wheel("nvidia.cudnn")
    yield Path(torch.__file__).parent / "lib"


def _wheel(package: str) -> Iterator[Path]:
    """The folders with the libraries of one of NVIDIA's wheels."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # no package of NVIDIA at all
        return
    for place in (spec.submodule_search_locations or ()) if spec else ():
        yield Path(place) / "lib"
        yield Path(place) / "bin"


def _cublaslt_loads(cudnn: Path) -> bool:
    """Load cuBLASLt, which cuDNN opens when it makes plans; without it cuDNN aborts.

    Its places are those of cuDNN's own search path ("RUNPATH" of libcudnn_graph.so.9).
    """
    folders = (cudnn.parent, *_wheel("nvidia.cublas"), *_wheel("nvidia.cu13"))
    for file in (f for folder in folders for name in _CUBLASLT for f in folder.glob(name)):
        try:
            ctypes.CDLL(str(file))
        except OSError:
            continue
        return True
    return False
