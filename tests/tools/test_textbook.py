"""tools/textbook.py: the numbers of some claims, counted by hand."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch
from torch import nn

import graphmem
from tools.claims.peaks import wide
from tools.claims.section import Row, Section, verdict
from tools.claims.sizes import layer_row, linear, of_first, two_layers
from tools.claims.training import kept


def test_the_saved_input_of_a_linear_is_batch_times_width() -> None:
    section = linear()
    found = {row.name: (row.cells[0], row.holds) for row in section.rows}
    assert found["fp32"] == ("262,144", True)  # 64*1024*4
    assert found["after a ReLU"] == ("262,144", True)
    # bf16: the input 64*1024*2 and the weight 1024*4096*2
    assert found["bf16 autocast"] == (f"{131_072 + 8_388_608:,}", False)
    assert found["its weight is frozen"] == ("0", False)


def test_what_the_first_of_two_layers_keeps_is_not_the_second_ones() -> None:
    report = two_layers()
    assert of_first(report) == 64 * 512 * 4
    assert kept(report) == 64 * 512 * 4 + 64 * 1024 * 4


def test_the_output_of_a_convolution_is_205_mb_and_kept_twice() -> None:
    with torch.device("meta"):
        model = nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(3, 64, 7, 2, 3, bias=False),
                bn1=nn.BatchNorm2d(64),
                relu=nn.ReLU(inplace=True),
                maxpool=nn.MaxPool2d(3, 2, 1),
            )
        )
    report = graphmem.analyze(model, graphmem.spec("64x3x224x224"), optimizer="sgd")
    output = 64 * 64 * 112 * 112 * 4
    image = 64 * 3 * 224 * 224 * 4
    statistics = 2 * 512  # mean and deviation of 64 channels, a block of 512 B each
    assert layer_row(report, "conv1", "fp32", 205).cells == (f"{output:,}", f"{image:,}")
    assert layer_row(report, "conv1", "fp32", 205).holds
    assert layer_row(report, "bn1", "fp32").cells[1] == f"{output + statistics:,}"
    assert layer_row(report, "relu", "fp32").cells[1] == f"{output:,}"
    assert not layer_row(report, "conv1", "fp32", 206).holds


def test_autocast_adds_the_copies_of_all_weights_in_inference() -> None:
    plain, mixed = wide("16x8192", mode="inference")
    copies = 4 * (8192 * 8192 + 8192) * 2
    # less the halves of results, of which there are no more than 4 of [16, 8192]
    assert copies - 4 * 16 * 8192 * 4 < mixed - plain <= copies


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ((True, True, None), "Holds."),
        ((True, False, None), "Holds in 1 of 2 cases."),
        ((False, None), "Does not hold."),
    ],
)
def test_a_verdict_counts_the_cases_that_are_asked(
    answers: tuple[bool | None, ...], said: str
) -> None:
    assert verdict([Row("", (), holds) for holds in answers]) == said


def test_a_section_is_a_table_between_the_answer_and_what_it_means() -> None:
    section = Section("Claim", "The rule.", "Why.", ("MB",), (Row("a", ("1",), True),))
    lines = list(section.lines())
    assert lines[:3] == ["## Claim", "", "**Holds.** The rule."]
    assert lines[4:7] == ["| | MB | holds |", "|---|--:|---|", "| a | 1 | yes |"]
    assert lines[8] == "Why."
