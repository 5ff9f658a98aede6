"""Which CPU runs the tests: what ONNX Runtime's kernels allocate and round depends on it."""

from __future__ import annotations

from pathlib import Path

import pytest

_NEEDED = frozenset({"avx512f", "avx512_vnni"})
_CPUINFO = Path("/proc/cpuinfo")


def _flags() -> frozenset[str]:
    """The CPU's instruction sets as Linux names them; none on another system."""
    if not _CPUINFO.is_file():
        return frozenset()
    lines = (line.partition(":") for line in _CPUINFO.read_text("utf-8").splitlines())
    return frozenset(next((v for k, _, v in lines if k.strip() == "flags"), "").split())


as_measured = pytest.mark.skipif(
    not _flags() >= _NEEDED,
    reason="the kernels of ONNX Runtime were measured on CPUs with AVX-512 and VNNI",
)
"""For tests that hold a prediction, or integer arithmetic, to a run of ONNX Runtime."""

packs_as_measured = pytest.mark.skipif(
    "amx_int8" in _flags(),
    reason="on CPUs with AMX products of unsigned and signed bytes pack 64 rows, not 4",
)
"""For tests of what is packed of a signed weight for unsigned operands.

Measured on a CPU with AMX: [80, 100] packs to 112 * (128 + 4) bytes, not 112 * (80 + 4).
"""
