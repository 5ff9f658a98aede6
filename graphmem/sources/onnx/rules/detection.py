"""Regions of interest and boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx import values
from graphmem.sources.onnx.bounds import or_bound
from graphmem.sources.onnx.refusal import refused
from graphmem.sources.onnx.registry import Call, rule


@rule("MaxRoiPool", constants=(1,))
def max_roi_pool(call: Call, x: Tensor, rois: Tensor) -> Tensor:
    """The largest of each bin of each region: [R, C, *pooled_shape]; zero in an empty bin.

    Regions are [R, 5]: the image, then left, top, right and bottom, inclusive, rounded.
    Source: Fast R-CNN's ROI pooling, onnxruntime/core/providers/cpu/object_detection/roi_pool.cc.
    """
    images = x.index_select(0, rois[:, 0].long())
    edges = (rois[:, 1:] * call.number("spatial_scale", 1.0)).round()
    for axis, bins in enumerate(call.integers("pooled_shape")):
        first, last = edges[:, 1 - axis], edges[:, 3 - axis]
        images = _largest(images, axis + 2, first, last, bins)
    return images.masked_fill(images == -math.inf, 0.0)


def _largest(images: Tensor, axis: int, first: Tensor, last: Tensor, bins: int) -> Tensor:
    """The largest within each bin of an axis, for each region by itself."""
    size = images.shape[axis]
    step = (last - first + 1).clamp(min=1) / bins
    place = torch.arange(size, device=images.device)
    shape = [-1, *(size if i == axis else 1 for i in range(1, images.dim()))]
    found = []
    for i in range(bins):
        start = ((i * step).floor() + first).clamp(0, size).unsqueeze(1)
        end = (((i + 1) * step).ceil() + first).clamp(0, size).unsqueeze(1)
        inside = ((place >= start) & (place < end)).reshape(shape)
        found.append(images.masked_fill(~inside, -math.inf).amax(axis))
    return torch.stack(found, dim=axis)


@rule("RoiAlign", since=10, constants=(1,))
def roi_align_10(call: Call, x: Tensor, rois: Tensor, images: Tensor) -> Tensor:
    """Opsets 10 to 15: coordinates are output_half_pixel."""
    return _roi_align(call, x, rois, images, half=False)


@rule("RoiAlign", since=16, constants=(1,))
def roi_align(call: Call, x: Tensor, rois: Tensor, images: Tensor) -> Tensor:
    """The mean (or largest) of samples in each bin of each region: [R, C, height, width].

    Regions are [R, 4]: left, top, right, bottom; ``images`` [R] says of which image each is.
    """
    half = call.text("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    return _roi_align(call, x, rois, images, half=half)


def _roi_align(call: Call, x: Tensor, rois: Tensor, images: Tensor, *, half: bool) -> Tensor:
    bins = (call.integer("output_height", 1), call.integer("output_width", 1))
    edges = rois * call.number("spatial_scale", 1.0) - (0.5 if half else 0.0)
    starts = (edges[:, 1], edges[:, 0])
    extents = [edges[:, 3] - edges[:, 1], edges[:, 2] - edges[:, 0]]
    if not half:
        extents = [extent.clamp(min=1.0) for extent in extents]
    steps = [extent / count for extent, count in zip(extents, bins, strict=True)]
    counts, most = _samples(call, steps, x.shape[2:], bins)
    grids = [
        _places(start, step, count, bins[axis], most[axis], x.shape[axis + 2])
        for axis, (start, step, count) in enumerate(zip(starts, steps, counts, strict=True))
    ]
    (rows, row_counts), (columns, column_counts) = grids
    corners = _corners(x, images, rows, columns)
    counted = (row_counts.unsqueeze(2) & column_counts.unsqueeze(1)).unsqueeze(1)
    shape = (rois.shape[0], x.shape[1], bins[0], most[0], bins[1], most[1])
    if call.text("mode", "avg") == "avg":
        sums = (sum(corners[1:], start=corners[0]) * counted).reshape(shape).sum((3, 5))
        area = (counts[0] * counts[1]).clamp(min=1).reshape(-1, 1, 1, 1)
        return sums / area
    # As in ONNX Runtime, the largest of the four weighted neighbours of each sample.
    largest = torch.stack(corners).amax(0) * counted
    return largest.masked_fill(~_used(counts, bins, most), -math.inf).reshape(shape).amax((3, 5))


def _samples(
    call: Call, steps: Sequence[Tensor], sizes: Sequence[int], bins: Sequence[int]
) -> tuple[list[Tensor], list[int]]:
    """How many samples each region takes along each axis of a bin, and the most of any."""
    ratio = call.integer("sampling_ratio", 0)
    if ratio > 0:
        return [torch.full_like(step, ratio) for step in steps], [ratio, ratio]
    counts = [step.ceil() for step in steps]
    most = or_bound(
        lambda: [max(values.integer(count.amax().long()), 1) for count in counts],
        lambda: [-(-size // count) for size, count in zip(sizes, bins, strict=True)],
        call,
        what="the sizes of regions",
        assumed="each is as large as the image",
    )
    return counts, most


def _places(
    start: Tensor, step: Tensor, count: Tensor, bins: int, most: int, size: int
) -> tuple[Tensor, Tensor]:
    """Where the samples of an axis lie, [R, bins * most], and which are in the image.

    Source of the limits -1 and size: torchvision/csrc/ops/cpu/roi_align_common.h.
    """
    sample = torch.arange(most, device=start.device) + 0.5
    at = torch.arange(bins, device=start.device).reshape(1, -1, 1) * step.reshape(-1, 1, 1)
    inner = sample * (step / count.clamp(min=1)).reshape(-1, 1, 1)
    place = start.reshape(-1, 1, 1) + at + inner
    inside = (place >= -1) & (place <= size) & (sample < count.reshape(-1, 1, 1))
    return place.clamp(0, size - 1).flatten(1), inside.flatten(1)


def _used(counts: Sequence[Tensor], bins: Sequence[int], most: Sequence[int]) -> Tensor:
    """Which samples a region has at all, [R, 1, rows, columns]."""
    rows, columns = (
        (torch.arange(most[axis], device=count.device) < count.unsqueeze(1)).repeat(1, bins[axis])
        for axis, count in enumerate(counts)
    )
    return (rows.unsqueeze(2) & columns.unsqueeze(1)).unsqueeze(1)


def _corners(x: Tensor, images: Tensor, rows: Tensor, columns: Tensor) -> list[Tensor]:
    """The four neighbours of each sample, weighted: [R, C, rows, columns] each."""
    height, width = x.shape[2:]
    planes = x.transpose(0, 1).flatten(1)  # [C, N * H * W]
    base = (images.long() * height * width).reshape(-1, 1, 1)
    top, left = rows.floor(), columns.floor()
    found = []
    for y, down in ((top, 1 - (rows - top)), (top + 1, rows - top)):
        for z, across in ((left, 1 - (columns - left)), (left + 1, columns - left)):
            line = y.clamp(max=height - 1).long().unsqueeze(2) * width
            index = base + line + z.clamp(max=width - 1).long().unsqueeze(1)
            read = planes.index_select(1, index.flatten()).unflatten(1, index.shape)
            weight = down.unsqueeze(2) * across.unsqueeze(1)
            found.append(read.transpose(0, 1) * weight.unsqueeze(1))
    return found


@rule("NonMaxSuppression", since=10, constants=(3, 4))
def non_max_suppression(
    call: Call,
    boxes: Tensor,
    scores: Tensor,
    most: Tensor | None = None,
    overlap: Tensor | None = None,
    threshold: Tensor | None = None,
) -> Tensor:
    """The best boxes of each class that don't overlap: rows of image, class, box, int64.

    Boxes are [N, B, 4], scores [N, C, B]. How many there are depends on both; in an analysis
    it is as many as ``most`` allows for each class of each image.
    """
    limit = 0 if most is None else values.integer(most)
    limit = min(limit, boxes.shape[1])
    cut = 0.0 if overlap is None else float(overlap.item())
    least = -math.inf if threshold is None else float(threshold.item())
    images, classes = scores.shape[:2]

    def exact() -> Tensor:
        corners = _as_corners(boxes, centered=call.integer("center_point_box", 0) == 1)
        rows = [
            [image, kind, box]
            for image in range(images)
            for kind in range(classes)
            for box in _best(corners[image], scores[image, kind], limit, cut, least)
        ]
        return torch.tensor(rows, dtype=torch.int64, device=boxes.device).reshape(-1, 3)

    return or_bound(
        exact,
        lambda: boxes.new_zeros((images * classes * limit, 3), dtype=torch.int64),
        call,
        what="the number of selected boxes",
        assumed=f"{limit} of each of {classes} classes of {images} images",
    )


def _as_corners(boxes: Tensor, *, centered: bool) -> Tensor:
    """Boxes with their smaller corner first; given as two corners, or as center and size."""
    a, b = boxes[..., :2], boxes[..., 2:]
    if centered:
        return torch.cat([a - b / 2, a + b / 2], dim=-1)
    return torch.cat([torch.minimum(a, b), torch.maximum(a, b)], dim=-1)


def _best(boxes: Tensor, scores: Tensor, limit: int, cut: float, least: float) -> list[int]:
    """The boxes of a class in order of their scores, none of which overlaps one before."""
    order = scores.sort(descending=True, stable=True)
    candidates = [
        box
        for score, box in zip(order.values.tolist(), order.indices.tolist(), strict=True)
        if score > least
    ]
    chosen: list[int] = []
    for box in candidates:
        if len(chosen) == limit:
            break
        if not chosen or not bool((_overlaps(boxes[box], boxes[chosen]) > cut).any()):
            chosen.append(box)
    return chosen


def _overlaps(box: Tensor, others: Tensor) -> Tensor:
    """The intersection of a box with others over their union."""
    start = torch.maximum(box[:2], others[:, :2])
    end = torch.minimum(box[2:], others[:, 2:])
    common = F.relu(end - start).prod(-1)
    area, areas = (box[2:] - box[:2]).prod(), (others[:, 2:] - others[:, :2]).prod(-1)
    return torch.nan_to_num(common / (area + areas - common))


@rule("ImageDecoder", since=20)
def image_decoder(call: Call, encoded: Tensor) -> Tensor:
    """Not computed."""
    raise refused(call, "the size of an encoded image lies in its bytes, and torch has no decoder")
