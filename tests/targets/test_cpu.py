"""Scratch rules of the CPU's kernels, with the arithmetic by hand."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from graphmem.errors import InvariantError
from graphmem.options import Target
from graphmem.targets import Call, layouts, rule_of, stages
from graphmem.targets.scratch import rules, scratch, scratch_rule

aten = torch.ops.aten


def scratch_of(func: Any, *args: Any, **kwargs: Any) -> int:
    rule = rule_of(func, Target.CPU)
    if rule is None:
        return 0
    blocks = stages(rule(Call(layouts(args), kwargs, layouts(func(*args, **kwargs)))))
    return sum(sum(stage) for stage in blocks)


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


@pytest.mark.parametrize(
    ("source", "nbytes"),
    [
        (meta(80, 60).t(), 60 * 60 * 4),  # [60, 80] transposed: a block of 60 x 60
        (meta(80, 60, dtype=torch.bfloat16).t(), 60 * 60 * 2),
        (meta(200, 200, dtype=torch.uint8).t(), 120 * 120),  # bytes take a block of 120 x 120
        (meta(50, 50).t(), 0),  # 2500 elements are fewer than 60 x 60
        (meta(60, 80), 0),  # not transposed
        (meta(2, 60, 80).transpose(1, 2), 0),  # not a matrix
    ],
)
def test_a_contiguous_copy_of_a_transposed_matrix_takes_a_block(
    source: torch.Tensor, nbytes: int
) -> None:
    assert scratch_of(aten.clone.default, source, memory_format=torch.contiguous_format) == nbytes


@pytest.mark.parametrize(("beta", "nbytes"), [(1, 60 * 60 * 4), (0, 0)])
def test_addmm_copies_its_transposed_summand(beta: int, nbytes: int) -> None:
    args = (meta(100, 64).t(), meta(64, 32), meta(32, 100))

    assert scratch_of(aten.addmm.default, *args, beta=beta) == nbytes


def test_a_bias_in_addmm_is_expanded_without_a_block() -> None:
    assert scratch_of(aten.addmm.default, meta(100), meta(64, 32), meta(32, 100)) == 0


@pytest.mark.parametrize(
    ("args", "nbytes"),
    [
        ((meta(10, 4), meta(10, 4)), 0),
        ((meta(10, 4), meta(10, 4, dtype=torch.bfloat16)), 10 * 4 * 4),  # one becomes fp32
        ((meta(10, 4), meta(4, dtype=torch.bool)), 4 * 4),  # before it is broadcast
        ((meta(10, 4, dtype=torch.bfloat16), 2.0), 0),
    ],
)
def test_elementwise_kernels_convert_inputs_of_another_dtype(args: Any, nbytes: int) -> None:
    assert scratch_of(aten.mul.Tensor, *args) == nbytes


def test_an_in_place_result_of_another_dtype_is_converted_too() -> None:
    # bf16.add_(fp32): the bf16 input becomes fp32 (160 B), and so does the result (160 B).
    args = (meta(10, 4, dtype=torch.bfloat16), meta(10, 4))

    assert scratch_of(aten.add_.Tensor, *args) == 160 + 160


def test_a_mask_is_read_as_it_is() -> None:
    args = (meta(10, 4, dtype=torch.bool), meta(10, 4), meta(10, 4))

    assert scratch_of(aten.where.self, *args) == 0


def test_cuda_kernels_convert_while_they_read() -> None:
    assert rule_of(aten.mul.Tensor, Target.CUDA) is None


def test_a_second_rule_for_an_operator_is_refused() -> None:
    with pytest.raises(InvariantError, match="two scratch rules for aten::addmm on cpu"):
        scratch("aten::addmm", target=Target.CPU)(lambda call: 0)
    assert scratch_rule(Target.CPU, "aten::addmm") is not None


def test_every_rule_names_its_source() -> None:
    for rule in rules().values():
        of_file = sys.modules[rule.__module__].__doc__
        assert "Source:" in f"{rule.__doc__} {of_file}", rule
