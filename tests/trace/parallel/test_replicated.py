"""DistributedDataParallel and ZeRO 1: what they add, by hand, and beside real runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import graphmem
from graphmem.measure.cpu import verify
from graphmem.trace.parallel.group import fake_ranks
from graphmem.trace.parallel.redundancy import fullest

from .models import ELEMENTS, Transformer, tokens

HOST = 1024
"""Bytes that the reducer has on the host: which parameters are used, the order of buckets."""


def _wide() -> nn.Module:
    """Two layers of 2 MiB."""
    return nn.Sequential(*(nn.Linear(512, 1024, bias=False), nn.Linear(1024, 512, bias=False)))


@pytest.mark.parametrize(
    "options",
    [
        {"ddp": True},
        {"zero": 0, "bucket_view": True},
        {"ddp": True, "bucket_cap_mb": 1, "accumulate": 2, "set_to_none": False},
        {"ddp": True, "mode": "inference"},
        {"zero": 1},
        {"zero": 1, "bucket_view": True, "optimizer": "sgd+momentum"},
    ],
    ids=str,
)
def test_a_rank_holds_what_torchs_own_run_does(options: dict[str, Any]) -> None:
    checked = verify(Transformer(), tokens(), ranks=4, **options)

    assert 0 <= checked.difference_bytes <= HOST


def test_buckets_are_as_large_as_the_gradients_and_views_save_all_but_one() -> None:
    """SGD holds nothing: at the peak stand parameters, gradients and buckets."""
    run: dict[str, Any] = {"target": "cpu", "optimizer": "sgd", "foreach": False}
    ways: tuple[dict[str, Any], ...] = (
        {},
        {"ddp": True, "ranks": 8},
        {"zero": 0, "ranks": 8, "bucket_view": True},
    )
    alone, copied, viewed = (
        graphmem.analyze(_wide(), torch.ones(1, 512), **run, **way).peak.allocated_bytes
        for way in ways
    )

    one = 512 * 1024 * 4
    assert copied - alone == 2 * one
    # A gradient is computed before it is copied into its bucket, where its view is; beside it
    # stand the gradient of the layer's output [512] and the layer's input [1024], 4 B each.
    assert viewed - alone == one + (512 + 1024) * 4


def test_zero_1_keeps_the_states_of_whole_tensors() -> None:
    report = graphmem.analyze(_wide(), torch.ones(1, 512), target="cpu", zero=1, ranks=2)

    # One of the two tensors: two states of it, and a step.
    assert report.breakdown["optimizer_states"] == 2 * 512 * 1024 * 4 + 4
    assert report.breakdown["parameters"] == 2 * 512 * 1024 * 4


def test_the_fullest_rank_is_that_of_the_greedy_partition() -> None:
    sizes = [5, 4, 3, 3]  # 5 to rank 0, 4 to rank 1, 3 to rank 1 (of 5 and 4): 7; 3 to rank 0: 8
    model = nn.ParameterList(nn.Parameter(torch.zeros(size)) for size in sizes)

    assert fullest(model, 2) == 0
    assert fullest(model, 4) == 0
    # 5 to rank 0, 4 to rank 1, 3 to rank 2, 3 to rank 2: 6 of them.
    assert fullest(model, 3) == 2


def test_an_optimizer_that_is_a_function_can_not_be_shared() -> None:
    with pytest.raises(graphmem.GraphmemError, match="by name or class"):
        graphmem.analyze(_wide(), torch.ones(1, 512), zero=1, ranks=2, optimizer=lambda p: None)


def test_nothing_is_left_of_the_wrapper() -> None:
    model = Transformer()

    graphmem.analyze(model, tokens(), ddp=True, ranks=2)
    report = graphmem.analyze(model, tokens(), target="cpu")

    assert report.breakdown["parameters"] == ELEMENTS * 4
    assert all(p.grad is None and not p._backward_hooks for p in model.parameters())


def test_the_buckets_of_a_wrapper_that_was_made_before_are_not_known() -> None:
    with fake_ranks(2):
        wrapped = nn.parallel.DistributedDataParallel(_wide())
        report = graphmem.analyze(wrapped, torch.ones(1, 512))

    (unknown,) = (item for item in report.unknown if "DistributedDataParallel" in item.what)
    assert unknown.bytes == 2 * 512 * 1024 * 4
