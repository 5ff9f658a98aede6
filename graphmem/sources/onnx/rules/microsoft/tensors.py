"""Operators on tensors that Microsoft's domain has beside ONNX's."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx.refusal import refused
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.microsoft.of_onnx import (
    MICROSOFT,
    onnx_rule,
    results,
)
from graphmem.sources.onnx.values import integer, integers, number


@rule("Inverse", domain=MICROSOFT)
def inverse(call: Call, x: Tensor) -> Tensor:
    """The inverse of each matrix; of half precision by way of float."""
    wide = x.float() if x.dtype is torch.float16 else x
    return torch.inverse(wide).to(x.dtype)


@rule("Trilu", domain=MICROSOFT)
def trilu(call: Call, x: Tensor, k: Tensor | None = None) -> Tensor:
    """The upper or lower triangle from diagonal k on."""
    diagonal = 0 if k is None else integer(k)
    return torch.triu(x, diagonal) if call.integer("upper", 1) else torch.tril(x, diagonal)


@rule("Unique", domain=MICROSOFT)
def unique(call: Call, x: Tensor) -> Any:
    """The values of a row in order of appearance, each element's place in them, the counts."""
    values, places, counts = torch.unique(x, return_inverse=True, return_counts=True)
    at = torch.arange(x.shape[0], device=x.device)
    first = torch.full_like(values, x.shape[0], dtype=torch.int64)
    order = torch.argsort(first.scatter_reduce(0, places, at, "amin"))
    rank = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=x.device))
    return results(call, values[order], rank[places], counts[order])


@rule("Rfft", domain=MICROSOFT)
def rfft(call: Call, x: Tensor) -> Tensor:
    """The transform of the last dimensions, real and imaginary parts [..., 2] last."""
    dims = tuple(range(-call.integer("signal_ndim", 1), 0))
    return torch.view_as_real(torch.fft.rfftn(x, dim=dims))


@rule("Irfft", domain=MICROSOFT)
def irfft(call: Call, x: Tensor) -> Tensor:
    """The inverse of Rfft; the last dimension becomes 2 * (n - 1) long."""
    dims = tuple(range(-call.integer("signal_ndim"), 0))
    made: Tensor = torch.fft.irfftn(torch.view_as_complex(x.contiguous()), dim=dims)
    return made


@rule("ComplexMul", domain=MICROSOFT)
def complex_mul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """The product of complex numbers [..., 2]."""
    return _complex_product(a, b)


@rule("ComplexMulConj", domain=MICROSOFT)
def complex_mul_conj(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """The product with the conjugates of b."""
    return _complex_product(a, torch.stack((b[..., 0], -b[..., 1]), -1))


def _complex_product(a: Tensor, b: Tensor) -> Tensor:
    real = a[..., 0] * b[..., 0] - a[..., 1] * b[..., 1]
    imaginary = a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]
    return torch.stack((real, imaginary), -1)


@rule("GridSample", domain=MICROSOFT)
def grid_sample(call: Call, x: Tensor, grid: Tensor) -> Tensor:
    """Values of [N, C, H, W] at the places of a grid [N, Ho, Wo, 2]."""
    mode, padding = call.text("mode", "bilinear"), call.text("padding_mode", "zeros")
    aligned = bool(call.integer("align_corners", 0))
    return F.grid_sample(x, grid, mode, padding, aligned)


@rule("CropAndResize", domain=MICROSOFT, constants=(1,))
def crop_and_resize(
    call: Call, x: Tensor, rois: Tensor, batch_indices: Tensor, crop_size: Tensor
) -> Tensor:
    """Boxes of images, resized with their corners aligned: [boxes, C, Hc, Wc].

    Args:
        rois: [boxes, 4], top, left, bottom and right as parts of the image.

    Source: onnxruntime/contrib_ops/cpu/crop_and_resize.cc.
    """
    height, width = integers(crop_size)
    top, left, bottom, right = rois.unbind(1)
    rows = _line(top, bottom, height, x.shape[2])
    columns = _line(left, right, width, x.shape[3])
    images = x[batch_indices.long()]
    inside = _inside(rows, x.shape[2])[:, :, None] & _inside(columns, x.shape[3])[:, None]
    if call.text("mode", "bilinear") == "nearest":
        made = _picked(images, (rows + 0.5).floor(), (columns + 0.5).floor())
    else:
        made = _between(images, rows, columns)
    return torch.where(inside[:, None], made, call.number("extrapolation_value", 0.0))


def _line(start: Tensor, end: Tensor, count: int, size: int) -> Tensor:
    """The coordinates [boxes, count] of a crop along one dimension."""
    if count == 1:
        return (0.5 * (start + end) * (size - 1))[:, None]
    step = (end - start) * (size - 1) / (count - 1)
    steps = torch.arange(count - 1, device=start.device, dtype=start.dtype)
    inner = start[:, None] * (size - 1) + steps * step[:, None]
    return torch.cat((inner, end[:, None] * (size - 1)), 1)


def _inside(places: Tensor, size: int) -> Tensor:
    return (places >= 0) & (places <= size - 1)


def _picked(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The elements at whole coordinates [boxes, Hc] and [boxes, Wc]."""
    rows = rows.long().clamp(0, images.shape[2] - 1)
    columns = columns.long().clamp(0, images.shape[3] - 1)
    box = torch.arange(images.shape[0], device=images.device)[:, None, None]
    return images.permute(0, 2, 3, 1)[box, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)


def _between(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Linear in both directions."""
    down = (rows - rows.floor())[:, None, :, None]
    across = (columns - columns.floor())[:, None, None]
    top, bottom = (
        torch.lerp(
            _picked(images, r, columns.floor()),
            _picked(images, r, columns.ceil()),
            across,
        )
        for r in (rows.floor(), rows.ceil())
    )
    return torch.lerp(top, bottom, down)


@rule("Pad", domain=MICROSOFT)
def pad(call: Call, data: Tensor, pads: Tensor, value: Tensor | None = None) -> Tensor:
    """ONNX's Pad; the pads may be [1, 2 * rank]."""
    given = None if value is None else value.reshape(())
    made: Tensor = onnx_rule(call, "Pad", data, pads.reshape(-1), given, version=13)
    return made


@rule("ExpandDims", domain=MICROSOFT)
def expand_dims(call: Call, x: Tensor, axis: Tensor) -> Tensor:
    """A new dimension of 1 at an axis."""
    return x.unsqueeze(integer(axis))


@rule("Range", domain=MICROSOFT)
def range_(call: Call, start: Tensor, limit: Tensor, delta: Tensor | None = None) -> Tensor:
    """Numbers from start to before limit."""
    return torch.arange(
        number(start), number(limit), number(delta, 1), dtype=start.dtype, device=start.device
    )


@rule("GatherND", domain=MICROSOFT)
def gather_nd(call: Call, data: Tensor, indices: Tensor) -> Tensor:
    """Slices at places [..., dimensions]."""
    made: Tensor = onnx_rule(call, "GatherND", data, indices.long(), version=12)
    return made


@rule("TorchEmbedding", domain=MICROSOFT)
def torch_embedding(
    call: Call,
    weight: Tensor,
    indices: Tensor,
    padding_idx: Tensor | None = None,
    scale_grad_by_freq: Tensor | None = None,
) -> Tensor:
    """Rows of a table [N, M]."""
    padding = None if padding_idx is None else integer(padding_idx)
    padding = None if padding is None or padding < 0 else padding
    scaled = bool(number(scale_grad_by_freq, False))
    return F.embedding(indices, weight, padding, scale_grad_by_freq=scaled)


@rule("UnfoldTensor", domain=MICROSOFT)
def unfold_tensor(call: Call, x: Tensor) -> Tensor:
    """All slices of a size along a dimension, in a new last dimension."""
    made = x.unfold(call.integer("dim", -1), call.integer("size"), call.integer("step", 1))
    return made.contiguous()


@rule("IsAllFinite", domain=MICROSOFT)
def is_all_finite(call: Call, *inputs: Tensor) -> Tensor:
    """Whether all elements are numbers that are finite: a scalar."""
    if call.integer("isinf_only", 0):
        bad = [torch.isinf(x).any() for x in inputs]
    elif call.integer("isnan_only", 0):
        bad = [torch.isnan(x).any() for x in inputs]
    else:
        bad = [~torch.isfinite(x).all() for x in inputs]
    return ~torch.stack(bad).any()


@rule("CDist", domain=MICROSOFT)
def cdist(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """Distances of rows: [M, D] and [K, D] to [M, K]."""
    metric = call.text("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        raise refused(call, f"ONNX Runtime has no distance {metric!r}")
    distance = torch.cdist(a, b)
    return distance if metric == "euclidean" else distance.square()


@rule("NGramRepeatBlock", domain=MICROSOFT)
def ngram_repeat_block(call: Call, input_ids: Tensor, scores: Tensor) -> Tensor:
    """Scores [B, V], -inf for tokens that would repeat a run of ``ngram_size`` tokens [B, S]."""
    size, length = call.integer("ngram_size"), input_ids.shape[1]
    if length < size:
        return scores.clone()
    runs = input_ids.unfold(1, size, 1)  # [B, runs, size]
    last = input_ids[:, length - size + 1 :]
    repeated = (runs[:, :, :-1] == last[:, None]).all(-1)
    token = runs[:, :, -1].long()
    hit = torch.zeros_like(scores).scatter_reduce(1, token, repeated.to(scores.dtype), "amax")
    return scores.masked_fill(hit > 0, float("-inf"))
