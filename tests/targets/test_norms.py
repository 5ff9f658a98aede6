"""layer_norm, rms_norm and group_norm on CUDA, with the arithmetic by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphmem
from graphmem import devices
from graphmem.errors import InvariantError
from graphmem.options import Target
from graphmem.report import Report
from graphmem.schedule import Scratch
from graphmem.targets import Call, layouts, result_rules, rule_of, stages
from graphmem.targets.cuda.versions import TORCH_VERSION
from graphmem.targets.results import fresh, results

aten = torch.ops.aten

FP32, BF16, FP64 = torch.float32, torch.bfloat16, torch.float64


def meta(*size: int, dtype: torch.dtype = FP32) -> Tensor:
    return torch.empty(size, dtype=dtype, device="meta")


def results_of(func: Any, *args: Any) -> Any:
    return result_rules(Target.CUDA)[func](Call(layouts(args), {}, None))


def scratch_of(func: Any, *args: Any, gpu: str = "A100-80GB") -> Scratch:
    rule = rule_of(func, Target.CUDA)
    assert rule is not None
    return stages(rule(Call(layouts(args), {}, None, devices.find(gpu))))


def saved(report: Report, module: str) -> int:
    return next(layer.saved_bytes for layer in report.layers if layer.module == module)


def operators(report: Report) -> set[str]:
    return {point.op for point in report.timeline or ()}


# -- layer_norm


@pytest.mark.parametrize(("dtype", "stats"), [(BF16, FP32), (FP32, FP32), (FP64, FP64)])
def test_layer_norm_keeps_a_mean_and_a_deviation_of_each_row(
    dtype: torch.dtype, stats: torch.dtype
) -> None:
    x = meta(6, 8, 4, 16, dtype=dtype).transpose(0, 1)

    out, mean, rstd = results_of(aten.native_layer_norm.default, x, [4, 16], None, None, 1e-5)

    assert out == fresh((8, 6, 4, 16), dtype)  # contiguous, whatever the input is
    assert mean == rstd == fresh((8, 6, 1, 1), stats)


@pytest.mark.parametrize(("precision", "itemsize"), [("fp32", 4), ("bf16", 2)])
def test_a_step_saves_them_in_fp32(precision: str, itemsize: int) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64))

    report = graphmem.analyze(
        model, torch.randn(8, 16, 64), precision=precision, optimizer="sgd", steps=1
    )

    # The input [8, 16, 64]; two statistics for each of 128 rows, 512 B each.
    assert saved(report, "1") == 8 * 16 * 64 * itemsize + 2 * 128 * 4


def test_what_is_not_contiguous_is_copied() -> None:
    x = meta(64, 32).t()  # [32, 64]

    forward = scratch_of(aten.native_layer_norm.default, x, [64], meta(64), meta(64), 1e-5)
    assert forward == ((32 * 64 * 4,),)
    backward = scratch_of(
        aten.native_layer_norm_backward.default,
        *(meta(32, 64), x, [64], meta(32, 1), meta(32, 1), meta(64), meta(64)),
        [True, True, True],
    )
    assert backward == ((32 * 64 * 4,),)


@pytest.mark.parametrize(
    ("rows", "width", "gpu", "mask", "blocks"),
    [
        # 96 // 32 = 3 columns of blocks; min(32,768 // 3, 65,600 / 32 = 2,050) rows of them.
        (65_600, 96, "A100-80GB", [True, True, True], [2050 * 96 * 4] * 2 + [96 * 4] * 2),
        (65_600, 96, "A100-80GB", [True, True, False], [2050 * 96 * 4, 96 * 4]),
        (2_000_000, 96, "A100-80GB", [True, True, False], [10_922 * 96 * 4, 96 * 4]),
        (65_536, 96, "A100-80GB", [True, True, True], []),  # not more than 65,536 rows
        (65_600, 32 * 54, "A100-80GB", [True, True, True], []),  # 54 columns, half of 108 SMs
        (65_600, 32 * 54, "H200", [True, True, False], [606 * 1728 * 4, 1728 * 4]),  # of 132
        (65_600, 96, "A100-80GB", [True, False, False], []),
    ],
)
def test_many_short_rows_are_summed_in_blocks(
    rows: int, width: int, gpu: str, mask: list[bool], blocks: list[int]
) -> None:
    x, stat, weight = meta(rows, width), meta(rows, 1), meta(width)

    layer = scratch_of(
        aten.native_layer_norm_backward.default,
        *(x, x, [width], stat, stat, weight, weight, mask),
        gpu=gpu,
    )
    assert layer == ((tuple(blocks),) if blocks else ())


# -- rms_norm


def test_rms_norm_keeps_one_number_a_row() -> None:
    out, rstd = results_of(
        aten._fused_rms_norm.default, meta(4, 8, 64, dtype=BF16), [64], None, None
    )

    assert (out, rstd) == (fresh((4, 8, 64), BF16), fresh((4, 8, 1), FP32))


def test_its_backward_sums_in_blocks_for_the_weight_alone() -> None:
    x, stat, weight = meta(65_600, 96), meta(65_600, 1), meta(96)

    args = (x, x, [96], stat, weight, [True, True])
    assert scratch_of(aten._fused_rms_norm_backward.default, *args) == ((2050 * 96 * 4, 96 * 4),)
    dx, dweight = results_of(aten._fused_rms_norm_backward.default, *args)
    assert (dx, dweight) == (fresh((65_600, 96), FP32), fresh((96,), FP32))
    frozen = results_of(aten._fused_rms_norm_backward.default, *args[:-1], [True, False])
    assert frozen[1] is None


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "amp-bf16"])
@pytest.mark.parametrize("affine", [True, False])
def test_a_step_runs_the_fused_kernel(precision: str, affine: bool) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.RMSNorm(64, elementwise_affine=affine))

    report = graphmem.analyze(
        model,
        torch.randn(8, 16, 64),
        precision=precision,
        optimizer="sgd",
        steps=1,
        timeline=True,
    )

    assert {"aten._fused_rms_norm", "aten._fused_rms_norm_backward"} <= operators(report)
    assert "aten.rsqrt" not in operators(report)
    itemsize = 2 if precision in ("bf16", "fp16") else 4  # autocast asks for fp32
    assert saved(report, "1") == 8 * 16 * 64 * itemsize + 128 * 4


@pytest.mark.parametrize("grad", ["no_grad", "inference_mode"])
def test_an_inference_runs_it_too(grad: str) -> None:
    report = graphmem.analyze(
        nn.RMSNorm(64), torch.randn(8, 64), mode="inference", grad=grad, timeline=True
    )
    assert operators(report) == {"aten._fused_rms_norm"}


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (nn.RMSNorm(8), torch.randn(2, 4, 8, 8).to(memory_format=torch.channels_last)),
        (nn.RMSNorm(8, dtype=torch.float64), torch.randn(2, 8)),  # another dtype than the input's
        (nn.RMSNorm(8, elementwise_affine=False), torch.randn(2, 8, dtype=torch.complex64)),
    ],
)
@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and")
def test_elsewhere_the_composition_runs(model: nn.Module, x: Tensor) -> None:
    report = graphmem.analyze(model, x, mode="inference", timeline=True)

    assert "aten.rsqrt" in operators(report)


def test_the_cpu_runs_the_composition() -> None:
    for _ in range(2):  # and again, after a trace for CUDA
        report = graphmem.analyze(
            nn.RMSNorm(64), torch.randn(8, 64), mode="inference", target="cpu", timeline=True
        )
        assert "aten.rsqrt" in operators(report)
        graphmem.analyze(nn.RMSNorm(64), torch.randn(8, 64))


# -- group_norm


def test_group_norm_keeps_two_numbers_a_group_in_the_inputs_dtype() -> None:
    x = meta(2, 8, 4, 4, dtype=BF16).to(memory_format=torch.channels_last)

    out, mean, rstd = results_of(aten.native_group_norm.default, x, None, None, 2, 8, 16, 4, 1e-5)

    assert out == fresh((2, 8, 4, 4), BF16)  # contiguous
    assert mean == rstd == fresh((2, 4), BF16)


@pytest.mark.parametrize(
    ("dtype", "weight", "area", "blocks"),
    [
        (FP32, True, 16, [64, 64]),  # a scale and a shift for each of 2 * 8 channels
        (BF16, True, 16, [32, 32, 64, 64]),  # and statistics of 2 * 4 groups in fp32
        (BF16, False, 16, [32, 32]),
        (FP32, True, 1, []),
    ],
)
def test_group_norm_makes_parameters_for_each_channel(
    dtype: torch.dtype, weight: bool, area: int, blocks: list[int]
) -> None:
    x = meta(2, 8, area, dtype=dtype)
    parameter = meta(8, dtype=dtype) if weight else None

    made = scratch_of(aten.native_group_norm.default, x, parameter, parameter, 2, 8, area, 4, 1e-5)
    assert made == ((tuple(blocks),) if blocks else ())


@pytest.mark.parametrize(
    ("weight", "area", "mask", "blocks"),
    [
        # ds and db of 16 channels, c2 and c3 of 8 groups, c1 of 16 channels; fp32.
        (True, 16, [True, True, True], [64, 64, 32, 32, 64]),
        (False, 16, [True, False, False], [64, 64, 32, 32]),
        (True, 16, [False, True, True], [64, 64]),
        (True, 1, [True, True, True], [32, 32]),
    ],
)
def test_its_backward_sums_by_channel_and_by_group(
    weight: bool, area: int, mask: list[bool], blocks: list[int]
) -> None:
    x, stat = meta(2, 8, area, dtype=BF16), meta(2, 4, dtype=BF16)
    parameter = meta(8, dtype=BF16) if weight else None
    args = (x, x, stat, stat, parameter, 2, 8, area, 4, mask)

    assert scratch_of(aten.native_group_norm_backward.default, *args) == (tuple(blocks),)
    made = results_of(aten.native_group_norm_backward.default, *args)
    assert [layout is not None for layout in made] == mask


def test_group_norm_of_channels_last_copies_its_input() -> None:
    """Up to torch 2.13 it saves the copy; from 2.14 on it makes another one in backward."""
    x = torch.randn(2, 8, 16, 16).to(memory_format=torch.channels_last)
    model = nn.Sequential(nn.Softplus(), nn.GroupNorm(4, 8))

    report = graphmem.analyze(model, x, optimizer="sgd", steps=1, timeline=True)

    nbytes = 2 * 8 * 256 * 4
    statistics = 2 * 512  # [2, 4] of 4 bytes
    assert saved(report, "1") == nbytes + statistics
    assert ("aten.clone" in operators(report)) == (TORCH_VERSION < (2, 14))
    channels_last = meta(2, 8, 16, 16).to(memory_format=torch.channels_last)
    forward = scratch_of(
        aten.native_group_norm.default, channels_last, None, None, 2, 8, 256, 4, 1e-5
    )
    assert forward == ((nbytes,),)


# -- the mechanism


def test_a_second_rule_for_an_operators_results_is_refused() -> None:
    func = aten.native_layer_norm.default
    with pytest.raises(
        InvariantError, match=r"two rules for the results of aten\.native_layer_norm"
    ):
        results(func, target=Target.CUDA)(lambda call: None)


def test_every_rule_names_its_source() -> None:
    for target in Target:
        for func, rule in result_rules(target).items():
            assert "Source:" in (rule.__doc__ or ""), func


def test_no_kernel_is_left_registered() -> None:
    graphmem.analyze(nn.RMSNorm(64), torch.randn(8, 64))

    assert not torch._C._dispatch_has_kernel_for_dispatch_key("aten::_fused_rms_norm", "CPU")
    x = torch.randn(2, 8)
    expected = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + torch.finfo(x.dtype).eps)
    assert torch.allclose(nn.RMSNorm(8)(x), expected)
