"""Operators whose result is made of sizes: filled tensors, ranges, padding, triangles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from graphmem.errors import ModelLoadError
from graphmem.sources.onnx import bounds
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import Array
from graphmem.sources.onnx.module import as_tensor
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.texts import moves_elements
from graphmem.sources.onnx.values import integer, integers, number


@rule("ConstantOfShape", since=9)
def constant_of_shape(call: Call, shape: Tensor) -> Tensor | Array:
    """A tensor of one value, by default 0 as float32."""
    sizes = integers(shape)
    if not call.has("value"):
        return torch.zeros(sizes, device=shape.device)
    weight = call.tensor("value")
    array = weight.read()
    if array is None:
        raise ModelLoadError(f"node {call.node.name} (ConstantOfShape): its value is missing")
    if weight.element is ElementType.STRING:
        return np.full(sizes, array.reshape(-1)[0], dtype=object)
    value = as_tensor(array, weight.element).reshape(-1)[0]
    return torch.full(sizes, value.item(), dtype=value.dtype, device=shape.device)


@rule("Range", since=11)
def range_(call: Call, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    """``start``, ``start + delta``, ... below ``limit``; half types are counted in float32."""
    first, last, step = (given.reshape(-1).tolist()[0] for given in (start, limit, delta))
    if max(math.ceil((last - first) / step), 0) == 0:
        return torch.empty(0, dtype=start.dtype, device=start.device)
    if start.dtype.itemsize == 2 and start.dtype.is_floating_point:
        return torch.arange(first, last, step, device=start.device).to(start.dtype)
    return torch.arange(first, last, step, dtype=start.dtype, device=start.device)


@rule("EyeLike", since=9)
def eye_like(call: Call, x: Tensor) -> Tensor:
    """Ones on a diagonal, zeros elsewhere, of x's shape."""
    dtype = ElementType(call.integer("dtype")).dtype if call.has("dtype") else x.dtype
    rows, columns, k = x.shape[0], x.shape[1], call.integer("k", 0)
    if k == 0:
        return torch.eye(rows, columns, dtype=dtype, device=x.device)
    made = torch.zeros(rows, columns, dtype=dtype, device=x.device)
    if -rows < k < columns:
        made.diagonal(k).fill_(1)
    return made


@rule("OneHot", since=9)
@moves_elements
def one_hot(call: Call, indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    """``values[1]`` at each index along a new ``axis`` of ``depth``, ``values[0]`` elsewhere."""
    count, axis = integer(depth), call.integer("axis", -1)
    axis = axis + indices.dim() + 1 if axis < 0 else axis
    index = indices.long()
    index = torch.where(index < 0, index + count, index).unsqueeze(axis)
    classes = torch.arange(count, device=indices.device)
    classes = classes.reshape([-1, *[1] * (indices.dim() - axis)])
    return torch.where(index == classes, values[1], values[0])


@rule("Trilu", since=14)
def trilu(call: Call, x: Tensor, k: Tensor | None = None) -> Tensor:
    """The upper or lower triangle of the last two dimensions, zeros elsewhere.

    In an analysis that does not know k it is 0: all need the same memory.
    """
    diagonal = 0 if k is None or not bounds.is_known(k) else integer(k)
    return torch.triu(x, diagonal) if call.integer("upper", 1) else torch.tril(x, diagonal)


@rule("Pad")
def pad_by_paddings(call: Call, x: Tensor) -> Tensor:
    """Padding by the attribute ``paddings``."""
    return _pad(call, x, list(call.integers("paddings")), call.number("value", 0.0))


@rule("Pad", since=2)
def pad_by_attribute(call: Call, x: Tensor) -> Tensor:
    """Padding by the attribute ``pads``; negative ones crop."""
    return _pad(call, x, list(call.integers("pads")), call.number("value", 0.0))


@rule("Pad", since=11, constants=(2,))
def pad(
    call: Call, x: Any, pads: Tensor, value: Any = None, axes: Tensor | None = None
) -> Tensor | Array:
    """Padding of all axes, or of ``axes`` (since 18), all begins before all ends."""
    given = integers(pads)
    if axes is not None:
        given = _of_all_axes(given, integers(axes), len(x.shape))
    if isinstance(x, np.ndarray):
        fill = "" if value is None else np.asarray(value, dtype=object).reshape(-1)[0]
        return _padded_strings(call, x, given, fill)
    return _pad(call, x, given, number(value, 0))


def _of_all_axes(pads: list[int], axes: list[int], rank: int) -> list[int]:
    made = [0] * 2 * rank
    for position, axis in enumerate(axes):
        made[axis % rank] = pads[position]
        made[axis % rank + rank] = pads[position + len(axes)]
    return made


_MODES = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _pad(call: Call, x: Tensor, pads: list[int], value: float) -> Tensor:
    """``pads`` has all begins, then all ends."""
    mode = call.text("mode", "constant")
    sides = list(zip(pads[: x.dim()], pads[x.dim() :], strict=True))
    last_first = [n for side in reversed(sides) for n in side]
    if mode == "constant":
        return F.pad(x, last_first, value=value)
    if _torch_pads(x, sides):
        return F.pad(x, last_first[: 2 * (x.dim() - 2)], _MODES[mode])
    for axis, (begin, end) in enumerate(sides):
        if begin or end:
            places = torch.arange(-begin, x.shape[axis] + end, device=x.device)
            x = x.index_select(axis, _inside(places, x.shape[axis], mode))
    return x


def _torch_pads(x: Tensor, sides: list[tuple[int, int]]) -> bool:
    """Whether ``F.pad`` has the mode: floats [N, C, ...], less padding than there is data."""
    return (
        x.dim() in (3, 4, 5)
        and x.is_floating_point()
        and not any(sides[0] + sides[1])
        and all(0 <= n < size for size, side in zip(x.shape, sides, strict=True) for n in side)
    )


def _inside(places: Tensor, size: int, mode: str) -> Tensor:
    """Positions inside of 0..size-1 for positions beyond."""
    if mode == "edge":
        return places.clamp(0, size - 1)
    if mode == "wrap":
        return places.remainder(size)
    period = max(2 * (size - 1), 1)
    places = places.remainder(period)
    return torch.where(places < size, places, period - places)


def _padded_strings(call: Call, x: Array, pads: list[int], fill: str) -> Array:
    positions = torch.arange(x.size).reshape(x.shape)
    places = _pad(call, positions, pads, -1).reshape(-1).tolist()
    flat = [*x.reshape(-1).tolist(), fill]
    shape = [n + b + e for n, b, e in zip(x.shape, pads[: x.ndim], pads[x.ndim :], strict=True)]
    return np.array([flat[place] for place in places], dtype=object).reshape(shape)


@rule("CenterCropPad", since=18)
def center_crop_pad(call: Call, x: Tensor, shape: Tensor) -> Tensor:
    """The middle of x where it is too large, zeros around it where it is too small."""
    sizes = integers(shape)
    axes = call.integers("axes", tuple(range(x.dim())))
    pads = [0] * 2 * x.dim()
    for given, size in zip(axes, sizes, strict=True):
        axis = given % x.dim()
        missing = size - x.shape[axis]
        if missing < 0:
            x = x.narrow(axis, -missing // 2, size)
        else:
            pads[2 * (x.dim() - 1 - axis)] = missing // 2
            pads[2 * (x.dim() - 1 - axis) + 1] = missing - missing // 2
    return F.pad(x, pads) if any(pads) else x
