"""Convolutions. Inputs are [N, C, *sizes], weights [M, C / group, *kernel]."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx.refusal import refused
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.sliding import (
    Sliding,
    check_axes,
    pad,
    sliding,
    split_padding,
    without_padding,
)

_CONV: tuple[Any, ...] = (F.conv1d, F.conv2d, F.conv3d)
_TRANSPOSED: tuple[Any, ...] = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


@rule("Conv")
def conv(call: Call, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """A convolution; padding that differs between the sides is added to the input first."""
    made = sliding(call, x.shape[2:], w.shape[2:])
    if not made.is_symmetric:
        x, made = pad(x, made), without_padding(made)
    function = _CONV[len(made.kernel) - 1]
    group = call.integer("group", 1)
    y: Tensor = function(x, w, b, made.strides, made.before, made.dilations, group)
    return y


@rule("ConvTranspose")
def conv_transpose(call: Call, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    """The gradient of a convolution: weights are [C, M / group, *kernel].

    Padding cuts the result; where it differs between the sides, the common part is torch's
    and the rest is cut off.
    """
    made, extra = _transposed(call, x.shape[2:], w.shape[2:])
    common = tuple(map(min, made.before, made.after))
    function = _TRANSPOSED[len(made.kernel) - 1]
    group = call.integer("group", 1)
    y: Tensor = function(x, w, b, made.strides, common, extra, group, made.dilations)
    for axis, kept in enumerate(common):
        first, last = made.before[axis] - kept, made.after[axis] - kept
        if first or last:
            y = y.narrow(axis + 2, first, y.shape[axis + 2] - first - last)
    return y


def _transposed(
    call: Call, sizes: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[Sliding, tuple[int, ...]]:
    """How it slides, and what is added to the end of the result.

    Source: the documentation of ConvTranspose: ``output_shape`` decides the padding, and
    without it SAME gives ``size * stride``.
    """
    check_axes(call, len(sizes))
    made = Sliding(
        kernel=tuple(kernel),
        strides=call.integers("strides", (1,) * len(sizes)),
        dilations=call.integers("dilations", (1,) * len(sizes)),
        before=(0,) * len(sizes),
        after=(0,) * len(sizes),
    )
    extra = call.integers("output_padding", (0,) * len(sizes))
    same = call.text("auto_pad", "NOTSET")
    wanted = call.get("output_shape")
    if wanted is None and same not in ("SAME_UPPER", "SAME_LOWER"):
        padded = sliding(call, sizes, kernel)
        return padded, extra
    if wanted is None:
        wanted = tuple(size * stride for size, stride in zip(sizes, made.strides, strict=True))
    totals = [
        stride * (size - 1) + more + extent - result
        for stride, size, more, extent, result in zip(
            made.strides, sizes, extra, made.extents, wanted[-len(sizes) :], strict=True
        )
    ]
    extra = tuple(more + max(-total, 0) for more, total in zip(extra, totals, strict=True))
    totals = [max(total, 0) for total in totals]
    return split_padding(made, totals, more_after=same == "SAME_UPPER"), extra


def integer_conv(
    call: Call, x: Tensor, w: Tensor, x_zero: Tensor | None, w_zero: Tensor | None
) -> Tensor:
    """A convolution of integers without their zero points, exactly, as int32.

    Torch's CUDA has none of integers: float64 holds every sum of products of bytes.
    """
    sums: Tensor = conv(call, centered(x, x_zero), centered(w, w_zero, axis=0))
    return sums.to(torch.int32)


def centered(x: Tensor, zero: Tensor | None, axis: int | None = None) -> Tensor:
    """Integers less their zero point (one for all, or one for each of an axis), as float64."""
    wide = x.double()
    if zero is None:
        return wide
    if axis is not None and zero.dim() == 1 and zero.numel() > 1:
        zero = zero.reshape([-1 if i == axis % x.dim() else 1 for i in range(x.dim())])
    elif zero.numel() == 1:
        zero = zero.reshape(())
    return wide - zero.double()


@rule("ConvInteger", since=10)
def conv_integer(
    call: Call,
    x: Tensor,
    w: Tensor,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
) -> Tensor:
    """A convolution of 8-bit integers: int32. Padding is the zero point."""
    return integer_conv(call, x, w, x_zero, w_zero)


@rule("DeformConv", since=19)
def deform_conv(
    call: Call,
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """A convolution that reads its input beside the grid, by linear interpolation.

    ``offset`` [N, offset_group * K * axes, *results] moves each tap of a kernel of K taps,
    ``mask`` [N, offset_group * K, *results] weighs it. What lies outside is zero.
    """
    axes, groups, shared = x.dim() - 2, call.integer("group", 1), call.integer("offset_group", 1)
    if axes not in (2, 3):
        raise refused(call, f"{axes} spatial axes, but torch samples 2 and 3")
    made = sliding(call, x.shape[2:], w.shape[2:])
    batch, results = x.shape[0], offset.shape[2:]
    taps = w[0, 0].numel()
    moved = offset.reshape(batch * shared, taps, axes, *results)
    grid = _grid(moved, made, x.shape[2:]).flatten(1, 2)
    planes = x.reshape(batch * shared, -1, *x.shape[2:])
    # [N * shared, C / shared, K * results[0], *results[1:]]
    read = F.grid_sample(planes, grid, align_corners=False)
    read = read.reshape(batch, shared, -1, taps, *results)
    if mask is not None:
        read = read * mask.reshape(batch, shared, 1, taps, *results)
    read = read.reshape(batch, groups, -1, taps, *results).flatten(4)
    weights = w.reshape(groups, -1, w.shape[1], taps)
    y = torch.einsum("ngckp,gock->ngop", read, weights).reshape(batch, -1, *results)
    return y if b is None else y + b.reshape(-1, *(1,) * axes)


def _grid(moved: Tensor, made: Sliding, sizes: tuple[int, ...]) -> Tensor:
    """Where each tap reads, as grid_sample takes it: [B, K, *results, axes], last axis first."""
    axes, results = len(sizes), moved.shape[3:]
    taps = torch.cartesian_prod(*(torch.arange(k, device=moved.device) for k in made.kernel))
    found = []
    for axis in range(axes):
        start = torch.arange(results[axis], device=moved.device) * made.strides[axis]
        start = (start - made.before[axis]).reshape([-1 if i == axis else 1 for i in range(axes)])
        tap = (taps[:, axis] * made.dilations[axis]).reshape(-1, *(1,) * axes)
        at = moved[:, :, axis] + (start + tap)
        found.append((2 * at + (1 - sizes[axis])) / sizes[axis])
    return torch.stack(found[::-1], dim=-1)


@rule("CausalConvWithState", since=27)
def causal_conv(
    call: Call,
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    past: Tensor | None = None,
) -> Any:
    """A depthwise convolution over the past [B, C, K - 1] and the input [B, C, L].

    Gives its output [B, C, L] and the last K - 1 positions as the next past.
    """
    kept = w.shape[2] - 1
    if past is None:
        past = x.new_zeros(x.shape[0], x.shape[1], kept)
    whole = torch.cat([past, x], dim=2)
    y = F.conv1d(whole, w, b, groups=x.shape[1])
    if call.text("activation", "none") in ("silu", "swish"):
        y = F.silu(y)
    present = whole.narrow(2, whole.shape[2] - kept, kept)
    return (y, present) if call.outputs > 1 else y
