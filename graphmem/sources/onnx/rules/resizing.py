"""Resizing and sampling of grids.

Resizing works axis by axis. How an output position reads its axis follows from sizes and
attributes alone; where torch's ``F.interpolate`` reads the same, it is called, and otherwise
an axis is multiplied by a matrix of weights, or indexed.

Source of coordinates and weights: the documentation of Resize, and
onnx/reference/ops/op_resize.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx import values
from graphmem.sources.onnx.model import Array
from graphmem.sources.onnx.refusal import refused
from graphmem.sources.onnx.registry import Call, rule

_TORCH_LINEAR = {3: "linear", 4: "bilinear", 5: "trilinear"}
_TORCH_A = -0.75
"""The coefficient of torch's cubic. Source: aten/src/ATen/native/UpSample.h."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis: its size, the result's, the scale, and the region that is read (0 to 1)."""

    size: int
    result: int
    scale: float
    region: tuple[float, float] = (0.0, 1.0)

    @property
    def is_kept(self) -> bool:
        return self.size == self.result and self.scale == 1 and self.region == (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class _Kind:
    """How values are read between elements."""

    mode: str
    transform: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic: float = _TORCH_A
    excludes: bool = False
    antialias: bool = False
    outside: float = 0.0


@rule("Upsample")
def upsample_1(call: Call, x: Tensor) -> Tensor:
    """Opsets 1 to 6: the scales of the last two axes are attributes."""
    scales = [1.0, 1.0, call.number("height_scale"), call.number("width_scale")]
    return _scaled(call, x, scales)


@rule("Upsample", since=7)
def upsample_7(call: Call, x: Tensor) -> Tensor:
    """Opsets 7 and 8: scales are an attribute."""
    return _scaled(call, x, call.numbers("scales"))


@rule("Upsample", since=9, constants=(1,))
@rule("Resize", since=10, constants=(1,))
def upsample_9(call: Call, x: Tensor, scales: Tensor) -> Tensor:
    """Scales are an input."""
    return _scaled(call, x, _numbers(scales))


def _scaled(call: Call, x: Tensor, scales: Sequence[float]) -> Tensor:
    """Up to Resize 10: an output position reads ``position / scale``, rounded down."""
    mode = call.text("mode", "nearest")
    kind = _Kind("linear" if "linear" in mode else mode, "asymmetric", "floor")
    axes = [_Axis(s, math.floor(s * k), k) for s, k in zip(x.shape, scales, strict=True)]
    return _resized(x, axes, kind)


def _numbers(tensor: Tensor) -> list[float]:
    return [float(value) for value in tensor.reshape(-1).tolist()]


@rule("Resize", since=11, constants=(1, 2))
def resize(
    call: Call,
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
) -> Tensor:
    """By scales or to sizes, of all axes or (since 18) of those in ``axes``."""
    kind = _Kind(
        mode=call.text("mode", "nearest"),
        transform=call.text("coordinate_transformation_mode", "half_pixel"),
        nearest=call.text("nearest_mode", "round_prefer_floor"),
        cubic=call.number("cubic_coeff_a", _TORCH_A),
        excludes=call.integer("exclude_outside", 0) == 1,
        antialias=call.integer("antialias", 0) == 1,
        outside=call.number("extrapolation_value", 0.0),
    )
    rank = x.dim()
    chosen = [axis % rank for axis in call.integers("axes", tuple(range(rank)))]
    plans = _planned(call, [x.shape[axis] for axis in chosen], scales, sizes)
    if roi is not None and roi.numel() and kind.transform == "tf_crop_and_resize":
        ends = _numbers(roi)
        regions = zip(ends[: len(chosen)], ends[len(chosen) :], strict=True)
        plans = [
            _Axis(p.size, p.result, p.scale, region)
            for p, region in zip(plans, regions, strict=True)
        ]
    axes = [_Axis(size, size, 1.0) for size in x.shape]
    for axis, plan in zip(chosen, plans, strict=True):
        axes[axis] = plan
    return _resized(x, axes, kind)


def _planned(
    call: Call, sizes: Sequence[int], scales: Tensor | None, wanted: Tensor | None
) -> list[_Axis]:
    """The chosen axes, by the scales or sizes that are given."""
    if wanted is None or not wanted.numel():
        if scales is None:
            raise refused(call, "neither scales nor sizes are given")
        return [
            _Axis(size, math.floor(size * scale), scale)
            for size, scale in zip(sizes, _numbers(scales), strict=True)
        ]
    results = values.integers(wanted)
    ratios = [result / size for result, size in zip(results, sizes, strict=True)]
    policy = call.text("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return [_Axis(*one) for one in zip(sizes, results, ratios, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    return [_Axis(size, math.floor(scale * size + 0.5), scale) for size in sizes]


def _resized(x: Tensor, axes: Sequence[_Axis], kind: _Kind) -> Tensor:
    """Resize each axis that changes."""
    changed = [axis for axis, plan in enumerate(axes) if not plan.is_kept]
    if not changed:
        return x.clone()
    if kind.mode == "nearest":
        return _nearest(x, axes, changed, kind)
    found = _by_torch(x, axes, changed, kind)
    if found is not None:
        return found
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    for axis in changed:
        wide = _weighted(wide, axis, axes[axis], kind)
    if kind.transform == "tf_crop_and_resize":
        for axis in changed:
            outside = [not 0 <= at <= axes[axis].size - 1 for at in _positions(axes[axis], kind)]
            wide = _filled(wide, axis, outside, kind.outside)
    return wide.to(x.dtype)


def _nearest(x: Tensor, axes: Sequence[_Axis], changed: Sequence[int], kind: _Kind) -> Tensor:
    """Elements as they are; by torch where it reads the same ones."""
    reads = {
        axis: [_rounded(at, axes[axis], kind) for at in _positions(axes[axis], kind)]
        for axis in changed
    }
    spatial = x.dim() in _TORCH_LINEAR and min(changed) >= 2 and x.dtype.is_floating_point
    for mode, shift in (("nearest", 0.0), ("nearest-exact", 0.5)):
        if spatial and all(reads[axis] == _torch_reads(axes[axis], shift) for axis in changed):
            return F.interpolate(x, [plan.result for plan in axes[2:]], mode=mode)
    for axis in changed:
        x = x.index_select(axis, torch.tensor(reads[axis], device=x.device))
    if kind.transform == "tf_crop_and_resize":
        for axis in changed:
            outside = [not 0 <= at <= axes[axis].size - 1 for at in _positions(axes[axis], kind)]
            x = _filled(x, axis, outside, kind.outside)
    return x


def _torch_reads(axis: _Axis, shift: float) -> list[int]:
    """What torch's nearest modes read: the quotient of sizes is a float32 there.

    Source: aten/src/ATen/native/UpSample.h, nearest_neighbor_compute_source_index.
    """
    scale = torch.tensor(axis.size, dtype=torch.float32) / axis.result
    at = ((torch.arange(axis.result, dtype=torch.float32) + shift) * scale).floor()
    return [min(int(one), axis.size - 1) for one in at.tolist()]


def _filled(x: Tensor, axis: int, where: list[bool], value: float) -> Tensor:
    """With a value in some places of an axis."""
    shape = [-1 if i == axis else 1 for i in range(x.dim())]
    mask = torch.tensor(where, device=x.device).reshape(shape)
    return x.masked_fill(mask, value)


def _by_torch(
    x: Tensor, axes: Sequence[_Axis], changed: Sequence[int], kind: _Kind
) -> Tensor | None:
    """Torch's linear or cubic, if it is the same; None if it is not."""
    cubic = kind.mode == "cubic"
    fits = (
        (x.dim() == 4 if cubic else x.dim() in _TORCH_LINEAR)
        and min(changed) >= 2
        and not kind.antialias
        and not kind.excludes
        and x.dtype.is_floating_point
        and (not cubic or kind.cubic == _TORCH_A)
        and all(abs(plan.result - plan.size * plan.scale) < 1e-6 * plan.result for plan in axes)
    )
    single = any(axes[axis].result == 1 for axis in changed)
    corners = kind.transform == "align_corners" and not single
    half = kind.transform == "half_pixel" or (
        kind.transform in ("pytorch_half_pixel", "half_pixel_symmetric") and not single
    )
    if not fits or not (corners or half):
        return None
    mode = "bicubic" if cubic else _TORCH_LINEAR[x.dim()]
    return F.interpolate(x, [plan.result for plan in axes[2:]], mode=mode, align_corners=corners)


def _weighted(x: Tensor, axis: int, plan: _Axis, kind: _Kind) -> Tensor:
    """An axis times the matrix [result, size] of how much each element counts."""
    matrix = torch.tensor(_matrix(plan, kind), dtype=x.dtype, device=x.device)
    return (x.movedim(axis, -1) @ matrix.T).movedim(-1, axis)


def _matrix(plan: _Axis, kind: _Kind) -> Array:
    """How much each element counts at each position; edges count for what is outside."""
    reach, weigh = _filter(kind)
    scale = min(plan.scale, 1.0) if kind.antialias else 1.0
    at = np.array(_positions(plan, kind))[:, None]
    taps = np.floor(at - reach / scale) + np.arange(1, math.ceil(2 * reach / scale) + 1)
    weights = weigh(np.abs(taps - at) * scale)
    if kind.excludes:
        weights = np.where((taps >= 0) & (taps < plan.size), weights, 0.0)
    if kind.excludes or kind.antialias:
        totals = weights.sum(axis=1, keepdims=True)
        weights = weights / np.where(totals == 0, 1.0, totals)
    matrix = np.zeros((plan.result, plan.size))
    columns = taps.clip(0, plan.size - 1).astype(np.int64)
    np.add.at(matrix, (np.arange(plan.result)[:, None], columns), weights)
    return matrix


def _filter(kind: _Kind) -> tuple[float, Callable[[Array], Array]]:
    """How far an element counts, and how much at a distance."""
    if kind.mode == "linear":
        return 1.0, lambda d: (1 - d).clip(0.0)
    a = kind.cubic

    def cubic(d: Array) -> Array:
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))

    return 2.0, cubic


def _positions(axis: _Axis, kind: _Kind) -> list[float]:
    """Where in the input each output position reads."""
    place = _transform(axis, kind.transform)
    return [place(y) for y in range(axis.result)]


def _transform(axis: _Axis, name: str) -> Callable[[int], float]:
    size, scale, last = axis.size, axis.scale, axis.size - 1
    width = scale * size
    start, end = axis.region
    if name == "align_corners":
        return lambda y: 0.0 if width == 1 else y * last / (width - 1)
    if name == "asymmetric":
        return lambda y: y / scale
    if name == "tf_crop_and_resize":
        if width == 1:
            return lambda y: (start + end) * last / 2
        return lambda y: start * last + y * (end - start) * last / (width - 1)
    if name == "pytorch_half_pixel" and axis.result == 1:
        return lambda y: 0.0
    offset = size / 2 * (1 - axis.result / width) if name == "half_pixel_symmetric" else 0.0
    return lambda y: offset + (y + 0.5) / scale - 0.5


def _rounded(at: float, axis: _Axis, kind: _Kind) -> int:
    """The element that the nearest mode reads at a position."""
    rounding: dict[str, Callable[[float], int]] = {
        "round_prefer_floor": lambda x: math.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: math.floor(x + 0.5),
        "floor": math.floor,
        "ceil": math.ceil,
    }
    return min(max(rounding[kind.nearest](at), 0), axis.size - 1)


@rule("GridSample", since=16)
def grid_sample(call: Call, x: Tensor, grid: Tensor) -> Tensor:
    """Reads x [N, C, *sizes] where grid [N, *results, axes] says."""
    names = {"linear": "bilinear", "cubic": "bicubic"}
    mode = call.text("mode", "bilinear")
    mode = names.get(mode, mode)
    corners = call.integer("align_corners", 0) == 1
    padding = call.text("padding_mode", "zeros")
    if x.dim() not in (4, 5) or (mode == "bicubic" and x.dim() == 5):
        raise refused(call, f"torch samples no {mode} grids of {x.dim() - 2} axes")
    return F.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=corners)


@rule("AffineGrid", since=20)
def affine_grid(call: Call, theta: Tensor, size: Tensor) -> Tensor:
    """The grid of an affine map, for grids of two or three axes."""
    corners = call.integer("align_corners", 0) == 1
    return F.affine_grid(theta, values.integers(size), align_corners=corners)
