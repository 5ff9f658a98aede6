"""ZeRO 2 as DeepSpeed runs it: by hand, and the same loop run for real."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import graphmem
from graphmem.errors import UsageError
from graphmem.measure.cpu import verify
from graphmem.trace.parallel.flat import Flat, fullest, numel_of

from .models import ELEMENTS, Transformer, tokens


def _parameters(*sizes: int) -> list[nn.Parameter]:
    return [nn.Parameter(torch.ones(size)) for size in sizes]


@pytest.mark.parametrize(
    "options",
    [
        {"zero_bucket": 50_000},
        {"zero_bucket": 10_000, "optimizer": "sgd+momentum"},  # the tables are larger than that
        {"zero_bucket": 1_000_000, "accumulate": 2},
        {"zero_bucket": 50_000, "precision": "bf16"},
    ],
    ids=str,
)
def test_the_loop_takes_what_it_takes_for_real(options: dict[str, Any]) -> None:
    checked = verify(Transformer(), tokens(), zero=2, ranks=4, **options)

    assert abs(checked.unexplained_bytes) <= 64  # scalars of the optimizer


def test_a_rank_has_all_parameters_and_a_share_of_the_rest() -> None:
    report = graphmem.analyze(
        *(Transformer(), tokens()), target="cpu", zero=2, ranks=4, zero_bucket=50_000
    )

    assert ELEMENTS % 8 == 0  # so that nothing is padded
    assert report.breakdown["parameters"] == ELEMENTS * 4
    # The fp32 copy, two states and a step.
    assert report.breakdown["optimizer_states"] == 3 * ELEMENTS // 4 * 4 + 4


def test_the_bucket_is_taken_whole_in_backward() -> None:
    run: dict[str, Any] = {"target": "cpu", "zero": 2, "ranks": 2}
    small, large = (
        graphmem.analyze(nn.Linear(64, 64), torch.ones(1, 64), **run, zero_bucket=elements)
        for elements in (10_000, 500_000_000)
    )

    added = large.peak.allocated_bytes - small.peak.allocated_bytes
    assert added == (500_000_000 - 10_000) * 4


def test_parts_are_equal_and_end_with_zeros() -> None:
    parameters = _parameters(5, 4, 2)  # 11 elements, 16 for 4 ranks: parts of 4

    assert numel_of(parameters, 4) == 16
    own = Flat(parameters, torch.zeros(16), ranks=4, rank=1)
    assert [own.is_own(parameter) for parameter in parameters] == [True, True, False]
    assert own.parts_of(parameters) == [(0, 4), (1, 4), (2, 3)]
    slices = own.own_slices([torch.arange(5), torch.arange(4)])
    assert [part.tolist() for part in slices] == [[4], [0, 1, 2]]
    last = Flat(parameters, torch.zeros(16), ranks=4, rank=3)
    assert [part.tolist() for part in last.own_slices([])] == [[0, 0, 0, 0]]


def test_the_fullest_rank_is_that_of_the_largest_tensors() -> None:
    # Parts of 6: rank 0 has the first and the start of the second, rank 1 its rest and the third.
    assert fullest(_parameters(4, 4, 4), 2) == 0
    assert fullest(_parameters(2, 2, 8), 2) == 0
    assert fullest(_parameters(6, 2, 4), 2) == 0
    assert fullest(_parameters(2, 4, 6), 2) == 0
    assert fullest(_parameters(3, 1, 8, 4), 4) == 1  # parts of 4: 4, then 8, 8 and 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"zero_bucket": 0}, "zero bucket must be 1 element or more"),
        ({"precision": "bf16", "master_weights": True}, "it keeps fp32 copies by itself"),
        ({"precision": "amp-fp16"}, "DeepSpeed has no GradScaler"),
        ({"bucket_view": True}, "bucket view: goes with ddp or zero 1"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        graphmem.analyze(Transformer(), tokens(), zero=2, ranks=2, **options)
