"""What the processor can do that runs a measurement."""

from __future__ import annotations

from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")


def flags() -> frozenset[str]:
    """Its instruction sets as Linux names them; none on another system."""
    if not _CPUINFO.is_file():
        return frozenset()
    lines = (line.partition(":") for line in _CPUINFO.read_text("utf-8").splitlines())
    return frozenset(next((v for k, _, v in lines if k.strip() == "flags"), "").split())


def has_amx() -> bool:
    """Whether ONNX Runtime's kernels for AMX run here.

    Source: ``MLAS_PLATFORM::MLAS_PLATFORM`` in onnxruntime/core/mlas/lib/platform.cpp: tiles and
    their products of bytes.
    """
    return flags() >= {"amx_tile", "amx_int8"}
