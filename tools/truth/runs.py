"""Scripts of others, traced: whole protocols with their warm-up, and levels in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import graphmem
from graphmem.report import Report, TimelinePoint

GPUS = {
    "NVIDIA A100-SXM4-80GB": "A100-80GB",
    "A100 80GB PCIe": "A100-80GB",
    "A800-SXM4-80GB": "A100-80GB",  # the same chip with a slower link
    "A100 40 GB (inferred)": "A100-40GB",
    "A100-SXM4-40GB": "A100-40GB",
    "A10G": "A10G",
    "NVIDIA H100 80GB HBM3": "H100-80GB",
    "H100 80GB": "H100-80GB",
    "NVIDIA L40S": "L40S",
    "NVIDIA GeForce RTX 3060": "RTX 3060",
    "Tesla T4": "T4",
    "V100-SXM2-16GB": "V100-16GB",
    # Neither is this one, but both have its cuBLAS workspaces (SM 9.0 and 12.0).
    "98 GB GPU (H20 or RTX PRO 6000)": "H100-80GB",
    "98 GB GPU": "H100-80GB",
}
"""The name of a GPU in graphmem, for each that the file names."""

_MARK = "aten.erfinv"


def mark() -> None:
    """A place in a traced script whose level can be asked for: an operator without bytes."""
    torch.empty(0).erfinv()


@dataclass(frozen=True)
class Run:
    """A traced script.

    ``marks`` are the indices of its ``mark()`` calls in the timeline, in order.
    """

    report: Report
    timeline: Sequence[TimelinePoint]
    marks: tuple[int, ...]

    def level(self, number: int) -> int:
        """``memory_allocated()`` at a mark."""
        return self.timeline[self.marks[number]].allocated_bytes

    def reserved(self, number: int) -> int:
        """``memory_reserved()`` at a mark."""
        reserved = self.timeline[self.marks[number]].reserved_bytes
        assert reserved is not None  # the target is CUDA
        return reserved

    def peak(self, first: int = 0, last: int = -1) -> int:
        """``max_memory_allocated()`` at a mark, reset at an earlier one."""
        between = self.timeline[self.marks[first] : self.marks[last] + 1]
        return max(point.allocated_bytes for point in between)


def run(script: Callable[[], Any], gpu: str, steps: int = 1) -> Run:
    """Trace a script that calls ``mark``.

    Args:
        gpu: as ``measured.csv`` names it.
        steps: how many times the script runs.
    """
    report = graphmem.record(script, steps=steps, device=GPUS[gpu], timeline=True)
    timeline = report.timeline
    assert timeline is not None  # it was asked for
    marks = tuple(point.index for point in timeline if point.op.startswith(_MARK))
    return Run(report, timeline, marks)
