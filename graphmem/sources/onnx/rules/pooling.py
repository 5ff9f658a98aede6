"""Pools. Inputs are [N, C, *sizes]."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx import values
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.sliding import (
    MOST_AXES,
    Sliding,
    pad,
    sliding,
    without_padding,
)

_MAX: tuple[Any, ...] = (F.max_pool1d, F.max_pool2d, F.max_pool3d)
_AVERAGE: tuple[Any, ...] = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)
_GLOBAL_MAX: tuple[Any, ...] = (
    F.adaptive_max_pool1d,
    F.adaptive_max_pool2d,
    F.adaptive_max_pool3d,
)


@rule("MaxPool")
def max_pool(call: Call, x: Tensor) -> Any:
    """The largest of each window, and where it lies in the whole input, flattened.

    Torch pads by the same on both sides and by half of the kernel at most; else the padding
    is added to the input. Bytes, of which torch's CUDA has no pool, go through float32.
    """
    if not x.dtype.is_floating_point:
        result = max_pool(call, x.float())
        return (result[0].to(x.dtype), result[1]) if call.outputs > 1 else result.to(x.dtype)
    made, ceil = sliding(call, x.shape[2:], call.integers("kernel_shape")), _ceil(call)
    sizes, shift = x.shape[2:], (0,) * len(made.kernel)
    if not (made.is_symmetric and made.is_within_half):
        made, shift = made.fitted(sizes, made.results(sizes, ceil=ceil)), made.before
        x, made, ceil = pad(x, made, -math.inf), without_padding(made), False
    function = _MAX[len(made.kernel) - 1]
    wanted = call.outputs > 1
    found = function(
        x, made.kernel, made.strides, made.before, made.dilations, ceil, return_indices=wanted
    )
    if not wanted:
        return found
    y, within = found
    columns = call.integer("storage_order", 0) == 1
    return y, _flat(within, x.shape[2:], sizes, shift, columns=columns)


def _ceil(call: Call) -> bool:
    return call.integer("ceil_mode", 0) == 1


def _flat(
    within: Tensor,
    padded: Sequence[int],
    sizes: Sequence[int],
    shift: Sequence[int],
    *,
    columns: bool,
) -> Tensor:
    """Positions in planes of torch's padded input, as ONNX counts them: over all planes.

    With ``columns`` the first spatial axis is the one that is counted fastest.
    """
    planes = torch.arange(within.shape[0] * within.shape[1], device=within.device)
    start = planes.reshape(*within.shape[:2], *(1,) * len(sizes)) * math.prod(sizes)
    if not columns and not any(shift):
        return start + within
    rest, step = within, 1
    steps = _steps(sizes, columns=columns)
    for axis in range(len(sizes) - 1, -1, -1):
        at = rest % padded[axis] - shift[axis]
        rest = rest // padded[axis]
        start = start + at * steps[axis]
        step *= sizes[axis]
    return start


def _steps(sizes: Sequence[int], *, columns: bool) -> list[int]:
    """How far apart neighbours of each axis are."""
    ordered = list(sizes) if columns else list(reversed(sizes))
    steps = list(itertools.accumulate([1, *ordered[:-1]], lambda a, b: a * b))
    return steps if columns else steps[::-1]


@rule("AveragePool")
def average_pool(call: Call, x: Tensor) -> Tensor:
    """The mean of each window, with padding counted or not.

    Torch's own where the padding is the same on both sides and nothing is dilated; else sums
    of windows over their counts.
    """
    sizes = x.shape[2:]
    made, ceil = sliding(call, sizes, call.integers("kernel_shape")), _ceil(call)
    counted = call.integer("count_include_pad", 0) == 1
    if made.is_symmetric and made.is_within_half and made.extents == made.kernel:
        function = _AVERAGE[len(made.kernel) - 1]
        y: Tensor = function(x, made.kernel, made.strides, made.before, ceil, counted)
        return y
    results = made.results(sizes, ceil=ceil)
    sums = _sums(x, made, results)
    for axis, counts in enumerate(_counts(made, sizes, results, padding=counted)):
        shape = [-1 if i == axis else 1 for i in range(len(sizes))]
        sums = sums / torch.tensor(counts, dtype=x.dtype, device=x.device).reshape(shape)
    return sums


def _counts(
    made: Sliding, sizes: Sequence[int], results: Sequence[int], *, padding: bool
) -> list[list[int]]:
    """Per axis, how many taps of each window lie in the input, or in it and its padding."""
    return [
        [
            sum(
                -before <= place * stride - made.before[axis] + tap * dilation < size + after
                for tap in range(kernel)
            )
            for place in range(results[axis])
        ]
        for axis, (kernel, stride, dilation, size) in enumerate(
            zip(made.kernel, made.strides, made.dilations, sizes, strict=True)
        )
        for before, after in [(made.before[axis], made.after[axis]) if padding else (0, 0)]
    ]


def _sums(x: Tensor, made: Sliding, results: Sequence[int]) -> Tensor:
    """The sum of each window; torch's pools are of two or three axes where they sum."""
    made = made.fitted(x.shape[2:], results)
    x = pad(x, made)
    if made.extents != made.kernel:
        return _dilated_sums(x, made, results)
    if len(made.kernel) == 1:
        sums: Tensor = F.avg_pool2d(
            x.unsqueeze(2), (1, *made.kernel), (1, *made.strides), divisor_override=1
        )
        return sums.squeeze(2)
    function = F.avg_pool2d if len(made.kernel) == 2 else F.avg_pool3d
    return function(x, made.kernel, made.strides, divisor_override=1)


def _dilated_sums(x: Tensor, made: Sliding, results: Sequence[int]) -> Tensor:
    """The sum of each dilated window, an axis after the other: one slice for each tap."""
    for axis, count in enumerate(results):
        stride, dilation = made.strides[axis], made.dilations[axis]
        reach = (count - 1) * stride + 1
        taps = [
            x.narrow(axis + 2, tap * dilation, reach)[
                (slice(None),) * (axis + 2) + (slice(None, None, stride),)
            ]
            for tap in range(made.kernel[axis])
        ]
        x = sum(taps[1:], start=taps[0])
    return x


@rule("LpPool")
def lp_pool(call: Call, x: Tensor) -> Tensor:
    """The p-norm of each window; up to opset 1, p is a float."""
    p = call.get("p", 2)
    sizes = x.shape[2:]
    made = sliding(call, sizes, call.integers("kernel_shape"))
    results = made.results(sizes, ceil=_ceil(call))
    return _sums(x.abs().pow(p), made, results).pow(1 / p)


@rule("GlobalAveragePool")
def global_average_pool(call: Call, x: Tensor) -> Tensor:
    """The mean of each plane, [N, C, 1, ...]."""
    return x.mean(dim=tuple(range(2, x.dim())), keepdim=True)


@rule("GlobalMaxPool")
def global_max_pool(call: Call, x: Tensor) -> Tensor:
    """The largest of each plane, [N, C, 1, ...]."""
    axes = x.dim() - 2
    if axes > MOST_AXES:
        return x.amax(dim=tuple(range(2, x.dim())), keepdim=True)
    y: Tensor = _GLOBAL_MAX[axes - 1](x, (1,) * axes)
    return y


@rule("GlobalLpPool")
def global_lp_pool(call: Call, x: Tensor) -> Tensor:
    """The p-norm of each plane, [N, C, 1, ...]."""
    axes = tuple(range(2, x.dim()))
    norm: Tensor = torch.linalg.vector_norm(x, call.get("p", 2), dim=axes, keepdim=True)
    return norm


@rule("MaxUnpool", since=9)
def max_unpool(call: Call, x: Tensor, indices: Tensor, shape: Tensor | None = None) -> Tensor:
    """Puts each value where its index says, and zeros elsewhere.

    Indices count in the size that the pool's attributes give; a larger ``shape`` adds zeros
    at the end. Source: onnx/reference/ops/op_max_unpool.py.
    """
    kernel = call.integers("kernel_shape")
    strides = call.integers("strides", (1,) * len(kernel))
    pads = call.integers("pads", (0,) * (2 * len(kernel)))
    sizes = [
        (size - 1) * stride - pads[axis] - pads[axis + len(kernel)] + k
        for axis, (size, stride, k) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    ]
    whole = [*x.shape[:2], *sizes]
    flat = x.new_zeros(math.prod(whole)).scatter(0, indices.reshape(-1), x.reshape(-1))
    y = flat.reshape(whole)
    if shape is None:
        return y
    more = [wanted - size for wanted, size in zip(values.integers(shape), whole, strict=True)]
    return F.pad(y, [side for extra in reversed(more) for side in (0, extra)])
