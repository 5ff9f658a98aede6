"""Families: every size's schedule is the one that a trace gives, and few are traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn

from graphmem.errors import GraphmemError
from graphmem.instantiate import Family
from graphmem.sources.inputs import InputSpec
from tests.instantiate import subjects
from tests.instantiate.subjects import images, rows, tokens, tracer

SIZES = range(1, 49)
CHECKED = (2, 3, 7, 16, 19, 30, 33, 47)


def _check(
    model: nn.Module,
    inputs: subjects.Inputs,
    sizes: Sequence[int] = SIZES,
    checked: Sequence[int] = CHECKED,
    **options: Any,
) -> Family:
    trace = tracer(model, inputs, **options)
    family = Family(trace, sizes)
    for size in checked:
        assert family.at(size) == trace(size).schedule, size
    return family


@pytest.mark.parametrize("target", ["cuda", "cpu"])
@pytest.mark.parametrize("precision", [None, "amp-bf16", "fp16"])
@pytest.mark.parametrize("mode", ["training", "inference"])
def test_a_convolutional_net_follows_from_three_or_four_traces(
    mode: str, precision: str | None, target: str
) -> None:
    if target == "cpu" and precision is not None:
        pytest.skip("the CPU's kernels are checked in fp32")
    family = _check(subjects.convnet(), images(), mode=mode, precision=precision, target=target)
    assert len(family.traced) <= 4  # both ends, the middle, and two where one is special


@pytest.mark.parametrize("device", ["T4", "L4", "A100-80GB", "H100-80GB"])
def test_it_follows_on_every_architecture(device: str) -> None:
    _check(subjects.convnet(), images(), device=device, checked=(5, 29))


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (subjects.Checkpointed(), rows()),
        (subjects.Recurrent(), lambda batch: InputSpec((batch, 5, 8))),
        (subjects.Attention(), lambda batch: InputSpec((batch, 12), torch.int64, high=100)),
        (subjects.convnet(inplace=False), images()),
    ],
    ids=["checkpointed", "lstm", "attention", "convnet"],
)
@pytest.mark.parametrize("options", [{}, {"accumulate": 2, "clip_grad_norm": 1.0}])
def test_a_model_follows_in_its_batch(
    model: nn.Module, inputs: subjects.Inputs, options: dict[str, Any]
) -> None:
    family = _check(model, inputs, **options)
    assert len(family.traced) <= 5


@pytest.mark.parametrize("options", [{"target": "cpu"}, {"precision": "bf16"}, {}])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_follows_in_its_sequence(masked: bool, options: dict[str, Any]) -> None:
    """With a mask, rows of another length than a multiple of 8 are padded: that is decided."""
    _check(subjects.Attention(masked=masked), tokens(), **options)


def test_a_batch_by_batch_matrix_takes_a_fourth_trace() -> None:
    family = _check(subjects.Contrastive(), rows(), sizes=range(2, 49))
    assert len(family.traced) == 4


def test_a_branch_is_found_by_halving() -> None:
    family = _check(subjects.Branches(), rows(), checked=(2, 19, 20, 21, 22, 47))
    assert len(family.traced) < len(SIZES) / 2


def test_numbers_with_a_bend_are_traced_around_it() -> None:
    _check(subjects.Capped(), rows(), sizes=range(1, 81), checked=(2, 38, 39, 40, 41, 42, 79))


def test_sizes_with_a_broken_number_are_traced() -> None:
    family = _check(subjects.Halves(), rows(), sizes=range(1, 50), checked=(2, 3, 4, 6, 31, 48))
    assert {2, 4, 6, 48} <= family.traced  # half of the batch, rounded up, is a whole number


def test_a_size_that_the_model_refuses_is_an_error_of_its_own() -> None:
    trace = tracer(subjects.Groups(), rows())
    family = Family(trace, range(1, 41))
    assert family.at(8) == trace(8).schedule
    for size in (5, 6, 7):
        with pytest.raises(GraphmemError, match="invalid for input of size"):
            family.at(size)
    assert family.at(24) == trace(24).schedule


def test_a_choice_of_kernels_that_changes_with_the_batch_is_told() -> None:
    """Batch norm takes CUDA's own kernels above 65,535 rows in evaluation."""
    model = nn.Sequential(nn.BatchNorm1d(4))
    sizes = range(65_520, 65_551)
    family = _check(
        model,
        lambda batch: InputSpec((batch, 4, 2)),
        sizes=sizes,
        checked=(65_521, 65_534, 65_535, 65_536, 65_537, 65_549),
        mode="inference",
    )
    kernels = {n: family.at(n).choices[0].kernel for n in (65_535, 65_536)}
    assert kernels == {65_535: "cudnn", 65_536: "native"}


def test_a_choice_within_an_operator_is_made_again() -> None:
    """A depthwise 1 x 1 convolution of stride 2 in fp16 is cuDNN's up to a batch of 16."""
    model = nn.Conv2d(128, 128, 1, stride=2, groups=128, bias=False)
    family = _check(
        model,
        images(128, 7),
        checked=(2, 15, 16, 17, 18, 47),
        precision="fp16",
        device="A100-80GB",
        mode="inference",
    )
    why = {n: family.at(n).choices[0].why for n in (16, 17)}
    assert why == {16: "depthwise, where cuDNN is the faster", 17: "depthwise"}


def test_a_size_outside_of_the_family_is_traced() -> None:
    trace = tracer(subjects.convnet(), images())
    family = Family(trace, (1, 2, 4))
    assert family.at(9) == trace(9).schedule
    assert family.traced == {9}


def test_benchmark_mode_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """cuDNN's benchmark mode tries all plans at the first call of a shape."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    _check(subjects.convnet(), images(), sizes=range(1, 9), checked=(2, 5, 6))
