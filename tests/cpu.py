"""Which CPU runs the tests: what ONNX Runtime's kernels allocate and round depends on it."""

from __future__ import annotations

import pytest

from graphmem.measure.processor import flags

_NEEDED = frozenset({"avx512f", "avx512_vnni"})


as_measured = pytest.mark.skipif(
    not flags() >= _NEEDED,
    reason="the kernels of ONNX Runtime were measured on CPUs with AVX-512 and VNNI",
)
"""For tests that hold a prediction, or integer arithmetic, to a run of ONNX Runtime."""
