"""Kernels of Triton: a launch allocates nothing, and reads and writes what it is given."""

from __future__ import annotations

import pytest

import graphmem

pytest.importorskip("triton")
from tests.trace.difficult.triton_kernels import Doubling

LAYER, ROW = (64 * 64 + 64) * 4, 64 * 4


@pytest.mark.parametrize("tuned", [False, True])
def test_a_launch_is_an_operation_without_memory_of_its_own(tuned: bool) -> None:
    report = graphmem.analyze(
        Doubling(tuned), "32x64", mode="inference", target="cpu", timeline=True
    )

    # Input, layer, its double, and that of the step before.
    assert report.peak.requested_bytes == LAYER + 4 * 32 * ROW
    assert report.timeline is not None
    assert sum(point.op == "triton._double" for point in report.timeline) == 2
    assert any("autotuning" in unknown.what for unknown in report.unknown) == tuned


def test_it_is_trained_through_its_function() -> None:
    report = graphmem.analyze(Doubling(tuned=False), "32x64", target="cpu")

    assert report.breakdown["optimizer_states"] >= 2 * LAYER  # AdamW's two moments
