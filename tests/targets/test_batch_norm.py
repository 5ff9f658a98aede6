"""batch_norm: cuDNN's or CUDA's own, with the arithmetic by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphmem
from graphmem import devices
from graphmem.options import Target
from graphmem.report import Report
from graphmem.schedule import Scratch
from graphmem.targets import Call, Context, context, layouts, result_rules, rule_of, stages
from graphmem.targets.results import fresh

aten = torch.ops.aten

FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16
LAST, LAST_3D = torch.channels_last, torch.channels_last_3d


def meta(*size: int, dtype: torch.dtype = FP32, form: Any = torch.contiguous_format) -> Tensor:
    return torch.empty(size, dtype=dtype, device="meta").to(memory_format=form)


def results_of(func: Any, *args: Any) -> Any:
    return result_rules(Target.CUDA)[func](Call(layouts(args), {}, None))


def scratch_of(func: Any, *args: Any) -> Scratch:
    rule = rule_of(func, Target.CUDA)
    assert rule is not None
    return stages(rule(Call(layouts(args), {}, None, devices.find("A100-80GB"))))


def operators(report: Report) -> list[str]:
    return [point.op for point in report.timeline or () if "batch_norm" in point.op]


def saved(report: Report, module: str) -> int:
    return next(layer.saved_bytes for layer in report.layers if layer.module == module)


class Scale(nn.Module):
    """Something to train, for inputs of any shape."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


X = torch.randn(8, 16, 10, 10)


# -- the choice


@pytest.mark.parametrize(
    ("module", "x", "precision", "why"),
    [
        (nn.BatchNorm2d(16), X, "fp32", None),
        (nn.BatchNorm2d(16, momentum=None), X, "fp32", None),
        (nn.BatchNorm2d(16, track_running_stats=False), X, "fp32", None),
        (nn.BatchNorm1d(16), X.flatten(2), "fp32", None),
        (nn.BatchNorm3d(16), X[..., None], "fp32", None),
        (nn.SyncBatchNorm(16), X, "fp32", None),  # one process
        (nn.BatchNorm2d(16), X, "bf16", "it takes no bfloat16"),
        (nn.BatchNorm2d(16), X, "fp16", "with a float16 input it takes float32 weights"),
        (nn.BatchNorm2d(16, affine=False), X, "fp32", "there is no weight and bias"),
        (nn.BatchNorm1d(16), X[:, :, 0, 0], "fp32", "the input has fewer than three dimensions"),
    ],
)
def test_cudnn_runs_where_nothing_stands_against_it(
    module: nn.Module, x: Tensor, precision: str, why: str | None
) -> None:
    model = nn.Sequential(Scale(), module)

    report = graphmem.analyze(
        model, x, precision=precision, optimizer="sgd", steps=1, timeline=True
    )

    (kernel,) = report.kernels
    name = "cudnn" if why is None else "native"
    assert (kernel.op, kernel.kernel) == ("batch_norm", name)
    assert why is None or kernel.why == f"not cudnn: {why}"
    assert operators(report)[0] == f"aten.{name}_batch_norm"


def test_instance_norm_is_a_batch_norm_of_one() -> None:
    report = graphmem.analyze(nn.InstanceNorm2d(16, affine=True), X, timeline=True)

    assert operators(report)[0] == "aten.cudnn_batch_norm"


def test_it_can_be_switched_off() -> None:
    with torch.backends.cudnn.flags(enabled=False):
        report = graphmem.analyze(nn.BatchNorm2d(16), X)

    assert [kernel.why for kernel in report.kernels] == ["not cudnn: it is switched off"]


def test_evaluation_runs_it_forward_and_cudas_own_backward() -> None:
    model = nn.BatchNorm2d(16).eval()

    def step() -> None:
        model(X).sum().backward()

    report = graphmem.record(step, steps=1, timeline=True)

    assert operators(report) == ["aten.cudnn_batch_norm", "aten.native_batch_norm_backward"]


@pytest.mark.parametrize("grad", ["no_grad", "inference_mode"])
def test_an_inference_runs_it(grad: str) -> None:
    report = graphmem.analyze(nn.BatchNorm2d(16), X, mode="inference", grad=grad, timeline=True)
    assert set(operators(report)) == {"aten.cudnn_batch_norm"}


def test_an_empty_batch_runs_neither() -> None:
    report = graphmem.analyze(nn.BatchNorm2d(16), X[:0], mode="inference", timeline=True)

    assert operators(report) == []


@pytest.mark.parametrize(
    ("precision", "itemsize", "kernel"),
    [("fp32", 4, "cudnn"), ("bf16", 2, "native"), ("amp-fp16", 2, "cudnn")],
)
def test_the_statistics_are_fp32(precision: str, itemsize: int, kernel: str) -> None:
    model = nn.Sequential(nn.Conv2d(16, 16, 1), nn.BatchNorm2d(16))

    report = graphmem.analyze(model, X, precision=precision, optimizer="sgd", steps=1)

    assert kernel in {k.kernel for k in report.kernels if k.op == "batch_norm"}

    # The input; mean and reciprocal deviation of 16 channels, a block of 512 B each.
    assert saved(report, "1") == 8 * 16 * 100 * itemsize + 2 * 512


# -- cuDNN


def cudnn_args(x: Tensor, training: bool = True) -> tuple[Any, ...]:
    channel = meta(x.shape[1])
    return (x, channel, channel, channel, channel, training, 0.1, 1e-5)


def test_cudnn_returns_the_inputs_format_and_no_reserve() -> None:
    x = meta(8, 16, 10, 10, dtype=FP16, form=LAST)

    out, mean, var, reserve = results_of(aten.cudnn_batch_norm.default, *cudnn_args(x))
    assert (out.size, out.stride, out.nbytes) == ((8, 16, 10, 10), x.stride(), 8 * 16 * 100 * 2)
    assert mean == var == fresh((16,), FP32)
    assert reserve.nbytes == 0

    _, mean, var, _ = results_of(aten.cudnn_batch_norm.default, *cudnn_args(x, training=False))
    assert mean.nbytes == var.nbytes == 0


@pytest.mark.parametrize(
    ("x", "forward", "backward"),
    [
        # Answers of libcudnn 9.24. 100,352 rows are 1,568 tiles of 64: 1,568 * (8 * 64 + 4)
        # + 1,072 + 4; in backward 1,046 tiles of 96: 1,046 * 8 * 64 + 1,056 + 4.
        (meta(32, 64, 56, 56, form=LAST), 810_164, 536_612),
        (meta(32, 64, 56, 56, dtype=FP16, form=LAST), 325_124, 536_612),  # tiles of 160
        (meta(8, 30, 14, 14, form=LAST), 7_680, 5_416),  # two groups of 16 channels
        (meta(4, 32, 8, 14, 14, dtype=FP16, form=LAST_3D), 21_716, 34_852),  # a group of 64
        (meta(32, 64, 56, 56), 0, 0),
        (meta(32, 64, 56), 0, 0),
    ],
)
def test_channels_last_takes_a_workspace(x: Tensor, forward: int, backward: int) -> None:
    channel = meta(x.shape[1])

    taken = scratch_of(aten.cudnn_batch_norm.default, *cudnn_args(x))
    assert taken == (((forward,),) if forward else ())
    assert scratch_of(aten.cudnn_batch_norm.default, *cudnn_args(x, training=False)) == ()
    taken = scratch_of(aten.cudnn_batch_norm_backward.default, x, x, channel)
    assert taken == (((backward,),) if backward else ())


def test_backward_copies_a_gradient_of_another_format() -> None:
    x, grad = meta(8, 16, 10, 10, form=LAST), meta(8, 16, 10, 10)

    ((copy, workspace),) = scratch_of(aten.cudnn_batch_norm_backward.default, x, grad, meta(16))
    # 800 rows are 9 tiles of 96; 16 channels are padded to 64.
    assert (copy, workspace) == (8 * 16 * 100 * 4, 9 * 8 * 64 + 1056 + 4)


@pytest.mark.parametrize(
    "x",
    [
        meta(8, 3, 10, 10, form=LAST),
        meta(8, 1, 10, 10, form=LAST),
        meta(8, 1, 10, 10),  # rows and channels last are the same
        meta(8, 1, 100),
    ],
)
def test_few_channels_take_as_much_as_sixteen_and_are_noted(x: Tensor) -> None:
    with context.active(Context()):
        taken = scratch_of(aten.cudnn_batch_norm.default, *cudnn_args(x))
        (unknown,) = context.current().unknown

    assert taken == ((13 * (8 * 16 + 4) + 1072 + 4,),)  # 800 rows are 13 tiles of 64
    assert "of one channel, or of two or three, channels last" in unknown.what


# -- CUDA's own


def test_native_keeps_statistics_in_evaluation_too() -> None:
    x = meta(8, 16, 10, 10, dtype=BF16, form=LAST)

    out, mean, invstd = results_of(aten.native_batch_norm.default, *cudnn_args(x, training=False))
    assert out.stride == x.stride()
    assert mean == invstd == fresh((16,), FP32)


@pytest.mark.parametrize(
    ("x", "forward", "backward"),
    [
        # 800 rows of 16 channels: blocks of 16 x 32; 800 / (32 * 16) = 2 rows of them, fewer
        # than 8, so no staging; in backward two sums of 16 channels.
        (meta(8, 16, 10, 10, form=LAST), (), (64, 64)),
        # 25,088 rows of 64: blocks of 32 x 16; 98 rows of them, two columns.
        (
            meta(32, 64, 28, 28, dtype=BF16, form=LAST),
            (4 * 64 * 98 * 4, 8),
            (256, 256, 2 * 64 * 98 * 4, 8),
        ),
        # 65,536 rows: no more than 128 rows of blocks.
        (meta(65_536, 32), (4 * 32 * 128 * 4, 4), (128, 128, 2 * 32 * 128 * 4, 4)),
        (meta(8, 16, 10, 10), (), ()),
    ],
)
def test_native_sums_channels_last_in_rows_of_blocks(
    x: Tensor, forward: tuple[int, ...], backward: tuple[int, ...]
) -> None:
    channel = meta(x.shape[1])

    taken = scratch_of(aten.native_batch_norm.default, *cudnn_args(x))
    assert taken == ((forward,) if forward else ())
    taken = scratch_of(
        aten.native_batch_norm_backward.default,
        *(x, x, channel, channel, channel, channel, channel, True, 1e-5, [True, True, True]),
    )
    assert taken == ((backward,) if backward else ())
