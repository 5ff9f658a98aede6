"""Fifty and more small modules and loops, one for each difficulty: all analyze completely.

Those that run on the CPU for real are held to that run: the peak is the same but for what
kernels take for themselves, and that is named. What can't be (scores are unknown, sizes are
bounds) has its numbers by hand in the files beside this one.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import graphmem
from graphmem.measure.cpu import Verification, verify
from tests.trace.difficult import (
    branches,
    caches,
    custom,
    layouts,
    loops,
    parallel,
    routing,
    sizes,
    wrapped,
)
from tests.trace.difficult.cases import Difficult, Loop
from tests.trace.difficult.measured import verify_loop

TOLERANCE_BYTES = 64
"""Of scalars: a kernel that converts a Python number takes a few bytes for it, on the CPU only."""

MODULES: tuple[Difficult, ...] = (
    *branches.DIFFICULT,
    *sizes.DIFFICULT,
    *routing.DIFFICULT,
    *layouts.DIFFICULT,
    *wrapped.DIFFICULT,
    *custom.DIFFICULT,
    *parallel.DIFFICULT,
)
LOOPS: tuple[Loop, ...] = (*caches.LOOPS, *parallel.LOOPS, *loops.LOOPS)
RUNS: list[tuple[Difficult, str]] = [
    (case, mode)
    for case in MODULES
    for mode in ("training", "inference")
    if case.trains or mode == "inference"
]


def _named(value: Difficult | Loop | str) -> str:
    return value if isinstance(value, str) else value.name


@pytest.fixture(autouse=True)
def _as_it_is_written() -> Iterator[None]:
    """What torch says of its own old or unfinished parts is not what is tested here."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_there_are_fifty_difficulties_and_more() -> None:
    names = [case.name for case in MODULES] + [loop.name for loop in LOOPS]
    assert len(set(names)) == len(names) >= 50


@pytest.mark.parametrize(("case", "mode"), RUNS, ids=_named)
def test_a_difficult_module_analyzes_completely(case: Difficult, mode: str) -> None:
    report = graphmem.analyze(
        case.model(), case.inputs(), mode=mode, loss=case.loss, **options(case, mode)
    )

    assert report.peak.allocated_bytes == sum(report.breakdown.values()) > 0
    assert len(report.steps) == 2


@pytest.mark.parametrize("case", LOOPS, ids=_named)
def test_a_difficult_loop_analyzes_completely(case: Loop) -> None:
    report = graphmem.record(case.make())

    assert report.peak.allocated_bytes == sum(report.breakdown.values()) > 0
    assert len(report.steps) == 2


@pytest.mark.parametrize(
    ("case", "mode"), [(case, mode) for case, mode in RUNS if mode in case.real], ids=_named
)
def test_a_difficult_module_takes_what_a_real_run_takes(case: Difficult, mode: str) -> None:
    verification = verify(
        case.model(), case.inputs(), mode=mode, loss=case.loss, **options(case, mode)
    )

    assert_explained(verification, case.kernels)


@pytest.mark.parametrize("case", [c for c in LOOPS if c.real], ids=_named)
def test_a_difficult_loop_takes_what_a_real_run_takes(case: Loop) -> None:
    assert_explained(verify_loop(case.make), case.kernels)


def options(case: Difficult, mode: str) -> dict[str, Any]:
    """The options of a case that a mode has."""
    return {k: v for k, v in case.options.items() if mode == "training" or k != "optimizer"}


def assert_explained(verification: Verification, kernels: frozenset[str]) -> None:
    """The peaks are the same, but for what some kernels take for themselves."""
    if not kernels:
        assert abs(verification.difference_bytes) <= TOLERANCE_BYTES, verification
    assert abs(verification.unexplained_bytes) <= TOLERANCE_BYTES, verification
    large = {s.operator for s in verification.scratch if s.bytes_at_peak > TOLERANCE_BYTES}
    assert not kernels or large <= kernels, large
