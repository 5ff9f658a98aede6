"""The memory format of what a convolution and its backward return on CUDA."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import graphmem
from graphmem import devices
from graphmem.options import Target
from graphmem.targets import Context, layouts, result_rules
from graphmem.targets.context import active
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call
from models.convnet import channels_last

aten = torch.ops.aten
ROWS, LAST, LAST_3D = torch.contiguous_format, torch.channels_last, torch.channels_last_3d
FP32, FP64, FP16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16


def meta(*size: int, dtype: torch.dtype = FP32, form: torch.memory_format = ROWS) -> Tensor:
    return torch.empty(size, dtype=dtype, device="meta").to(memory_format=form)


def forward(
    x: Tensor, weight: Tensor, *, gpu: str = "A100-80GB", **options: Any
) -> tuple[Layout, tuple[Any, ...]]:
    """What the rule says of a call, and its arguments after input and weight."""
    dims = x.dim() - 2
    values = {"stride": 1, "padding": 1, "dilation": 1, "transposed": False, "output_padding": 0}
    given = {**values, "groups": 1, **options}
    rest = tuple([v] * dims if type(v) is int else v for v in list(given.values())[:5])
    arguments = (None, *rest, given["groups"])
    rule = result_rules(Target.CUDA)[aten.convolution.default]
    with active(Context(devices.find(gpu))):
        made: Layout = rule(Call(layouts((x, weight, *arguments)), {}, None))
    return made, arguments


def backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    *,
    mask: tuple[bool, bool, bool] = (True, True, True),
    gpu: str = "A100-80GB",
    **options: Any,
) -> tuple[Layout | None, ...]:
    arguments = forward(x, weight, gpu=gpu, **options)[1][1:]
    bias_sizes = [grad.shape[1]]
    rule = result_rules(Target.CUDA)[aten.convolution_backward.default]
    with active(Context(devices.find(gpu))):
        made: tuple[Layout | None, ...] = rule(
            Call(layouts((grad, x, weight, bias_sizes, *arguments, list(mask))), {}, None)
        )
    return made


def in_format(layout: Layout, form: torch.memory_format) -> bool:
    return layout.stride == meta(*layout.size, form=form).stride()


# -- forward


@pytest.mark.parametrize(
    ("x", "weight", "options", "form"),
    [
        (meta(8, 16, 10, 12), meta(32, 16, 3, 3), {}, ROWS),
        (meta(8, 16, 10, 12, form=LAST), meta(32, 16, 3, 3), {}, LAST),
        (meta(8, 16, 10, 12), meta(32, 16, 3, 3, form=LAST), {}, LAST),
        (meta(8, 16, 10, 12, form=LAST), meta(32, 16, 3, 3, form=LAST), {}, LAST),
        (meta(1, 16, 10, 12, form=LAST), meta(32, 16, 3, 3), {}, LAST),
        (meta(8, 16, 10, 12, form=LAST, dtype=FP64), meta(32, 16, 3, 3, dtype=FP64), {}, ROWS),
        # A contiguous 1 x 1 weight is channels last too, but does not suggest it.
        (meta(8, 16, 10, 12), meta(32, 16, 1, 1), {"padding": 0}, ROWS),
        (meta(8, 16, 10, 12), meta(32, 16, 1, 1, form=LAST), {"padding": 0}, LAST),
        # Images of one pixel, and of one channel.
        (meta(8, 16, 1, 1), meta(32, 16, 1, 1), {"padding": 0}, ROWS),
        (meta(8, 1, 10, 12), meta(32, 1, 3, 3), {}, ROWS),
        (meta(8, 1, 10, 12, form=LAST), meta(32, 1, 3, 3), {}, LAST),
        (meta(2, 4, 5, 6, 7, form=LAST_3D), meta(8, 4, 3, 3, 3), {}, LAST_3D),
        (meta(2, 4, 5, 6, 7), meta(8, 4, 3, 3, 3), {}, ROWS),
        (meta(8, 16, 10, 12, form=LAST), meta(16, 32, 3, 3), {"transposed": True}, LAST),
        (meta(8, 16, 10, 12), meta(16, 32, 3, 3), {"transposed": True}, ROWS),
        # Depthwise: PyTorch's own kernel, unless it is channels last.
        (meta(8, 16, 10, 12), meta(16, 1, 3, 3), {"groups": 16}, ROWS),
        (meta(8, 16, 10, 12, form=LAST), meta(16, 1, 3, 3), {"groups": 16}, LAST),
        # No bfloat16 of cuDNN: im2col.
        (
            meta(8, 16, 10, 12, form=LAST, dtype=BF16),
            meta(32, 16, 3, 3, form=LAST, dtype=BF16),
            {"gpu": "T4"},
            ROWS,
        ),
        (
            meta(8, 16, 10, 12, form=LAST, dtype=BF16),
            meta(32, 16, 3, 3, form=LAST, dtype=BF16),
            {"gpu": "A100-80GB"},
            LAST,
        ),
    ],
)
def test_the_result_is_channels_last_if_an_operand_is(
    x: Tensor, weight: Tensor, options: dict[str, Any], form: torch.memory_format
) -> None:
    made, _ = forward(x, weight, **options)

    assert in_format(made, form)
    assert (made.dtype, made.nbytes) == (x.dtype, made.numel * x.element_size())


def test_without_cudnn_it_is_contiguous() -> None:
    with torch.backends.cudnn.flags(enabled=False):
        made, _ = forward(meta(8, 16, 10, 12, form=LAST), meta(32, 16, 3, 3, form=LAST))

    assert in_format(made, ROWS)


def test_one_dimension_is_rows_of_height_one() -> None:
    rows, _ = forward(meta(4, 16, 20).transpose(1, 2), meta(32, 20, 3))
    # A weight [32, 20, 3] that is stored as [32, 3, 20] is channels last as [32, 20, 1, 3].
    last, _ = forward(meta(4, 20, 16), meta(32, 3, 20).transpose(1, 2))

    assert (rows.size, rows.stride) == ((4, 32, 16), (32 * 16, 16, 1))
    assert (last.size, last.stride) == ((4, 32, 16), (32 * 16, 1, 32))


def test_an_empty_batch_keeps_its_size() -> None:
    made, _ = forward(meta(0, 16, 10, 12), meta(32, 16, 3, 3))

    assert (made.size, made.nbytes) == ((0, 32, 10, 12), 0)


def test_what_does_not_fit_is_refused_in_pytorchs_words() -> None:
    with pytest.raises(RuntimeError, match="channel"):
        forward(meta(8, 15, 10, 12), meta(32, 16, 3, 3))


# -- backward


@pytest.mark.parametrize(
    ("grad", "x", "weight", "of_input", "of_weight"),
    [
        (ROWS, ROWS, ROWS, ROWS, ROWS),
        (LAST, LAST, LAST, LAST, LAST),
        (LAST, LAST, ROWS, LAST, LAST),
        (ROWS, LAST, ROWS, LAST, LAST),  # grad_output is brought in the input's format
        (ROWS, ROWS, LAST, LAST, LAST),  # the input in the weight's
        (LAST, ROWS, ROWS, ROWS, ROWS),
    ],
)
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_are_in_the_format_of_their_operands(
    grad: Any, x: Any, weight: Any, of_input: Any, of_weight: Any, transposed: bool
) -> None:
    size = (16, 32, 3, 3) if transposed else (32, 16, 3, 3)
    made = backward(
        meta(8, 32, 10, 12, form=grad),
        meta(8, 16, 10, 12, form=x),
        meta(*size, form=weight),
        transposed=transposed,
    )

    grad_input, grad_weight, grad_bias = made
    assert grad_input is not None
    assert grad_weight is not None
    assert grad_bias is not None
    assert grad_input.size == (8, 16, 10, 12)
    assert grad_weight.size == size
    assert (grad_bias.size, grad_bias.stride) == ((32,), (1,))
    assert in_format(grad_input, of_input)
    assert in_format(grad_weight, of_weight)


def test_the_input_stays_as_it_is_if_the_weight_needs_no_gradient() -> None:
    grad_input, grad_weight, grad_bias = backward(
        meta(8, 32, 10, 12),
        meta(8, 16, 10, 12),
        meta(32, 16, 3, 3, form=LAST),
        mask=(True, False, False),
    )

    assert grad_weight is grad_bias is None
    assert grad_input is not None
    assert in_format(grad_input, LAST)  # because of the weight


def test_own_kernels_return_contiguous_gradients() -> None:
    x, grad = meta(8, 16, 10, 12, dtype=BF16, form=LAST), meta(8, 32, 10, 12, dtype=BF16, form=LAST)
    grad_input, grad_weight, _ = backward(grad, x, meta(32, 16, 3, 3, dtype=BF16), gpu="T4")

    assert grad_input is not None
    assert grad_weight is not None
    assert in_format(grad_input, ROWS)
    assert in_format(grad_weight, ROWS)


# -- in a trace


@pytest.mark.parametrize("precision", ["fp32", "amp-bf16", "amp-fp16"])
def test_a_network_in_channels_last_stays_in_it(precision: str) -> None:
    """Through convolutions, batch norms, ReLUs, the pool and the additions, and back.

    Only the images are rows, and the gradient of the mean over pixels.
    """
    model, images = channels_last(batch=2)
    graph = graphmem.graph(model, images, device="A100-80GB", precision=precision)
    made: dict[str, list[bool]] = {}
    for node in graph.nodes:
        tensor = node.meta.get("tensor_meta")
        source = node.args[0] if "getitem" in node.name else node
        if tensor is None or len(tensor.shape) != 4 or node.op != "call_function":
            continue
        last = tensor.stride == meta(*tensor.shape, form=LAST).stride()
        made.setdefault(str(source.target).split(".")[1], []).append(last)

    batch_norms = "native_batch_norm" if precision == "amp-bf16" else "cudnn_batch_norm"
    kept = ("convolution", "relu", "max_pool2d_with_indices", "add", batch_norms)
    backward = ("threshold_backward", "max_pool2d_with_indices_backward", f"{batch_norms}_backward")
    for operator in (*kept, "convolution_backward", *backward):
        assert made[operator], operator
        assert all(made[operator]), operator
