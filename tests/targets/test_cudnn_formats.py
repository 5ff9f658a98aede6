"""Memory formats, beside PyTorch's own answers, and which kernels run a convolution."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._prims_common
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphmem.devices import Gpu, find
from graphmem.targets import layouts
from graphmem.targets.cuda.cudnn import formats, native
from graphmem.targets.cuda.cudnn.formats import Format
from graphmem.targets.cuda.cudnn.selection import Backend, Geometry, choose
from graphmem.targets.layout import Layout


def layout(tensor: Tensor) -> Layout:
    found: Layout = layouts(tensor)
    return found


def empty(*size: int, dtype: torch.dtype = torch.float32, last: bool = False) -> Layout:
    form = Format.CHANNELS_LAST if last else Format.CONTIGUOUS
    return formats.new(size, dtype, form)


def geometry(dims: int = 2, **changed: Any) -> Geometry:
    ones, zeros = (1,) * dims, (0,) * dims
    values = {"stride": ones, "padding": zeros, "dilation": ones}
    rest = {"transposed": False, "output_padding": zeros, "groups": 1}
    return Geometry(**{**values, **rest, **changed})


# -- formats


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Permuted, sliced and expanded tensors of four dimensions, some of one element."""
    size = draw(st.lists(st.integers(1, 3), min_size=4, max_size=4))
    order = draw(st.permutations(range(4)))
    tensor = torch.empty([size[i] for i in order], device="meta")
    tensor = tensor.permute([order.index(i) for i in range(4)])
    if draw(st.booleans()) and tensor.shape[0] == 1:
        tensor = tensor.expand(2, -1, -1, -1)
    return tensor[..., ::2] if draw(st.booleans()) else tensor


@given(tensors())
def test_contiguous_in_a_format_is_what_pytorch_says(tensor: Tensor) -> None:
    mine = layout(tensor)

    assert formats.is_contiguous(mine, Format.CONTIGUOUS) == tensor.is_contiguous()
    assert formats.is_contiguous(mine, Format.CHANNELS_LAST) == tensor.is_contiguous(
        memory_format=torch.channels_last
    )


@given(tensors())
def test_the_suggested_format_is_what_pytorch_says(tensor: Tensor) -> None:
    last = torch.channels_last == torch._prims_common.suggest_memory_format(tensor)

    assert (formats.suggested(layout(tensor)) is Format.CHANNELS_LAST) == last


@pytest.mark.parametrize(
    ("size", "stride", "form"),
    [
        ((2, 3, 4, 5), (60, 20, 5, 1), Format.CONTIGUOUS),
        ((2, 3, 4, 5), (60, 1, 15, 3), Format.CHANNELS_LAST),
        ((8, 1, 1, 1), (1, 1, 1, 1), Format.CONTIGUOUS),  # ambiguous
        ((8, 64, 1, 1), (64, 1, 1, 1), Format.CONTIGUOUS),  # a 1 x 1 weight, contiguous
        ((8, 64, 1, 1), (64, 1, 64, 64), Format.CHANNELS_LAST),
        ((2, 3, 4, 5), (0, 0, 0, 0), Format.CONTIGUOUS),  # expanded
        ((2, 3, 4, 5, 6), (360, 1, 90, 18, 3), Format.CHANNELS_LAST),
    ],
)
def test_strides_suggest_a_format(size: Any, stride: Any, form: Format) -> None:
    assert formats.suggested(layout(torch.empty_strided(size, stride, device="meta"))) is form


def test_one_channels_last_operand_is_enough_except_in_double() -> None:
    assert formats.of_convolution(empty(2, 8, 4, 4), empty(4, 8, 3, 3, last=True)) is (
        Format.CHANNELS_LAST
    )
    double = empty(2, 8, 4, 4, dtype=torch.float64, last=True)
    assert formats.of_convolution(double, double) is Format.CONTIGUOUS


def test_a_1d_tensor_is_seen_as_rows_of_height_one() -> None:
    tensor = torch.empty(2, 3, 5, device="meta").transpose(1, 2)

    assert formats.as_2d(layout(tensor)) == layout(tensor.unsqueeze(2))


# -- which kernels

A100, T4 = find("A100-80GB"), find("T4")
HALF, BF16 = torch.float16, torch.bfloat16
PLAIN = empty(8, 64, 56, 56), empty(64, 64, 3, 3)


def depthwise(
    dtype: torch.dtype, *, side: int = 3, batch: int = 8, channels: int = 64
) -> tuple[Layout, Layout]:
    return empty(batch, channels, 56, 56, dtype=dtype), empty(channels, 1, side, side, dtype=dtype)


@pytest.mark.parametrize(
    ("tensors", "changed", "gpu", "backend"),
    [
        (PLAIN, {}, A100, Backend.CUDNN),
        (PLAIN, {"transposed": True}, A100, Backend.CUDNN),
        (PLAIN, {"dilation": (2, 2)}, A100, Backend.CUDNN),
        ((empty(0, 64, 56, 56), PLAIN[1]), {}, A100, Backend.EMPTY),
        (PLAIN, {"transposed": True, "output_padding": (1, 1)}, A100, Backend.COLUMNS),
        ((empty(8, 64, 9, 9, dtype=BF16), empty(64, 64, 3, 3)), {}, A100, Backend.CUDNN),
        ((empty(8, 64, 9, 9, dtype=BF16), empty(64, 64, 3, 3)), {}, T4, Backend.COLUMNS),
        (depthwise(torch.float32), {"groups": 64}, A100, Backend.DEPTHWISE),
        (depthwise(BF16), {"groups": 64}, A100, Backend.DEPTHWISE),
        (depthwise(HALF), {"groups": 64}, A100, Backend.CUDNN),
        (depthwise(HALF, side=7), {"groups": 64}, A100, Backend.DEPTHWISE),
        (depthwise(HALF), {"groups": 64, "stride": (2, 2)}, A100, Backend.DEPTHWISE),
        (depthwise(HALF, channels=256), {"groups": 256, "stride": (2, 2)}, A100, Backend.CUDNN),
        (depthwise(HALF, batch=1), {"groups": 64, "stride": (2, 2)}, A100, Backend.CUDNN),
        (depthwise(HALF), {"groups": 64, "dilation": (2, 2)}, A100, Backend.DEPTHWISE),
        (
            (empty(8, 64, 56, 56, last=True), empty(64, 1, 3, 3)),
            {"groups": 64},
            A100,
            Backend.CUDNN,
        ),
    ],
)
def test_the_kernels_of_a_convolution(
    tensors: tuple[Layout, Layout], changed: dict[str, Any], gpu: Gpu, backend: Backend
) -> None:
    assert choose(*tensors, geometry(**changed), gpu).backend is backend


def test_the_setting_for_depthwise_kernels_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    operands, grouped = depthwise(HALF), geometry(groups=64)

    monkeypatch.setattr(torch._C, "_get_cudnn_depthwise_kernel", lambda: "native")
    assert choose(*operands, grouped, A100).backend is Backend.DEPTHWISE
    monkeypatch.setattr(torch._C, "_get_cudnn_depthwise_kernel", lambda: "cudnn")
    assert choose(*depthwise(HALF, side=7), grouped, A100).backend is Backend.CUDNN


def test_without_cudnn_there_is_a_reason() -> None:
    with torch.backends.cudnn.flags(enabled=False):
        choice = choose(*PLAIN, geometry(), A100)

    assert choice.backend is Backend.COLUMNS
    assert "enabled" in choice.why


# -- scratch of PyTorch's own kernels


def test_columns_are_those_of_one_sample() -> None:
    output = empty(8, 32, 56, 56)
    plain = native.columns_forward(
        empty(8, 64, 56, 56), empty(32, 64, 3, 3), output, geometry(padding=(1, 1))
    )

    assert sum(plain) == 64 * 9 * 56 * 56 * 4  # channels * kernel * positions * fp32


def test_a_1x1_convolution_needs_no_columns_forward() -> None:
    operands = empty(8, 64, 56, 56), empty(32, 64, 1, 1)
    output = empty(8, 32, 56, 56)

    assert sum(native.columns_forward(*operands, output, geometry())) == 0
    # Backward makes them always.
    backward = native.columns_backward(output, *operands, geometry(), (True, True))
    assert sum(backward) == 64 * 56 * 56 * 4


def test_transposed_columns_are_over_the_input() -> None:
    operands = empty(8, 64, 7, 7), empty(64, 32, 4, 4)
    output = empty(8, 32, 28, 28)
    changed = geometry(transposed=True, stride=(4, 4))

    # 32 channels * 16 of the kernel * 49 positions * 4 B
    assert sum(native.columns_forward(*operands, output, changed)) == 32 * 16 * 49 * 4


def test_groups_keep_their_results_until_they_are_joined() -> None:
    operands = empty(8, 64, 9, 9), empty(32, 32, 3, 3)
    output = empty(8, 32, 7, 7)
    blocks = native.columns_forward(*operands, output, geometry(groups=2))

    part = 8 * 16 * 49 * 4  # half of the output
    group = 8 * 32 * 81 * 4  # half of the input, not contiguous in it
    assert blocks == (0, 0, part, part, group, 32 * 9 * 49 * 4)


def test_depthwise_kernels_only_copy() -> None:
    dense, strided = empty(8, 64, 9, 9), empty(8, 64, 9, 9, last=True)

    assert native.depthwise(dense, strided) == (0, 8 * 64 * 81 * 4)
