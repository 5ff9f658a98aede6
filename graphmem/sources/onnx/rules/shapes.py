"""Operators that give a tensor another shape, or tell its shape."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from graphmem.errors import ModelLoadError
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.texts import moves_elements
from graphmem.sources.onnx.values import integer, integers


@rule("Reshape")
@moves_elements
def reshape_by_attribute(call: Call, x: Tensor) -> Tensor:
    """A view of shape ``shape``."""
    return x.reshape(target_shape(tuple(x.shape), call.integers("shape"), copies_zero=True))


@rule("Reshape", since=5)
@moves_elements
def reshape(call: Call, x: Tensor, shape: Tensor) -> Tensor:
    """A view of another shape."""
    copies_zero = not call.integer("allowzero", 0)
    wanted = tuple(integers(shape))
    return x.reshape(target_shape(tuple(x.shape), wanted, copies_zero=copies_zero))


def target_shape(
    shape: tuple[int, ...], wanted: tuple[int, ...], *, copies_zero: bool
) -> list[int]:
    """The shape that ``wanted`` means: 0 copies a dimension, one -1 is what remains.

    In a tensor without elements -1 is what remains of the dimensions that are not 0.
    """
    made = [shape[i] if n == 0 and copies_zero else n for i, n in enumerate(wanted)]
    if -1 not in made:
        return made
    given, rest = shape, [n for n in made if n != -1]
    if 0 in given and 0 in rest:
        given, rest = tuple(n for n in given if n), [n for n in rest if n]
    made[made.index(-1)] = math.prod(given) // max(math.prod(rest), 1)
    return made


@rule("Transpose")
@moves_elements
def transpose(call: Call, x: Tensor) -> Tensor:
    """A view with the dimensions in another order, by default the reverse one."""
    return x.permute(call.integers("perm", tuple(reversed(range(x.dim())))))


@rule("Flatten")
@moves_elements
def flatten(call: Call, x: Tensor) -> Tensor:
    """Two dimensions: those before ``axis``, and the others."""
    axis = call.integer("axis", 1)
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@rule("Squeeze")
@moves_elements
def squeeze_by_attribute(call: Call, x: Tensor) -> Tensor:
    """A view without the dimensions of size 1 that ``axes`` names, by default all."""
    return x.squeeze(call.integers("axes")) if call.has("axes") else x.squeeze()


@rule("Squeeze", since=13)
@moves_elements
def squeeze(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """A view without dimensions of size 1."""
    return x.squeeze() if axes is None else x.squeeze(integers(axes))


@rule("Unsqueeze")
@moves_elements
def unsqueeze_by_attribute(call: Call, x: Tensor) -> Tensor:
    """A view with new dimensions of size 1."""
    return _unsqueeze(x, list(call.integers("axes")))


@rule("Unsqueeze", since=13)
@moves_elements
def unsqueeze(call: Call, x: Tensor, axes: Tensor) -> Tensor:
    """A view with new dimensions of size 1, at ``axes`` of the output."""
    return _unsqueeze(x, integers(axes))


def _unsqueeze(x: Tensor, axes: list[int]) -> Tensor:
    rank = x.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


@rule("Shape")
def shape(call: Call, x: Any) -> Tensor:
    """The sizes from ``start`` to ``end`` as a tensor [n] int64, of known values in a trace."""
    sizes = tuple(x.shape)[call.integer("start", 0) : call.get("end")]
    return torch.tensor(sizes, dtype=torch.int64, device=_device(x))


@rule("Size")
def size(call: Call, x: Any) -> Tensor:
    """The number of elements, a scalar int64."""
    return torch.tensor(math.prod(x.shape), dtype=torch.int64, device=_device(x))


def _device(x: Any) -> torch.device:
    return x.device if isinstance(x, Tensor) else torch.device("cpu")


@rule("Concat")
@moves_elements
def concat_along_1(call: Call, *parts: Tensor) -> Tensor:
    """One tensor of several, one after the other along ``axis``, by default 1."""
    return torch.cat(parts, call.integer("axis", 1))


@rule("Concat", since=4)
@moves_elements
def concat(call: Call, *parts: Tensor) -> Tensor:
    """One tensor of several, one after the other along ``axis``."""
    return torch.cat(parts, call.integer("axis"))


@rule("Split")
@moves_elements
def split(call: Call, x: Tensor, split: Tensor | None = None) -> Any:
    """Views of parts of given sizes (attribute or input ``split``), or of equal ones.

    Since opset 18 the last part is smaller where they can't be equal.
    """
    axis = call.integer("axis", 0)
    if split is not None:
        sizes = integers(split)
    else:
        sizes = list(call.get("split", ())) or _equal_parts(x.shape[axis], call.outputs)
    if sum(sizes) != x.shape[axis]:
        raise ModelLoadError(
            f"node {call.node.name} (Split): parts of {sizes} do not add up to {x.shape[axis]}"
        )
    parts = torch.split(x, sizes, axis)
    return parts if call.outputs > 1 else parts[0]


def _equal_parts(total: int, count: int) -> list[int]:
    part = -(-total // count)
    return [max(min(part, total - i * part), 0) for i in range(count)]


@rule("Expand")
@moves_elements
def expand(call: Call, x: Tensor, shape: Tensor) -> Tensor:
    """A view that repeats dimensions of size 1, as NumPy broadcasts."""
    return x.expand(torch.broadcast_shapes(x.shape, integers(shape)))


@rule("Tile")
@moves_elements
def tile_axis(call: Call, x: Tensor, tiles: Tensor, axis: Tensor) -> Tensor:
    """A copy, repeated along one axis."""
    repeats = [1] * x.dim()
    repeats[integer(axis)] = integer(tiles)
    return x.repeat(repeats)


@rule("Tile", since=6)
@moves_elements
def tile(call: Call, x: Tensor, repeats: Tensor) -> Tensor:
    """A copy, repeated along each axis."""
    return x.repeat(integers(repeats))


@rule("DepthToSpace")
@moves_elements
def depth_to_space(call: Call, x: Tensor) -> Tensor:
    """[N, C*b*b, H, W] to [N, C, H*b, W*b]."""
    b = call.integer("blocksize")
    if call.text("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, b)
    n, c, h, w = x.shape
    parts = x.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    return parts.reshape(n, c // (b * b), h * b, w * b)


@rule("SpaceToDepth")
@moves_elements
def space_to_depth(call: Call, x: Tensor) -> Tensor:
    """[N, C, H*b, W*b] to [N, C*b*b, H, W]."""
    b = call.integer("blocksize")
    if call.text("mode", "DCR") == "CRD":
        return F.pixel_unshuffle(x, b)
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4)
    return parts.reshape(n, c * b * b, h // b, w // b)


@rule("Col2Im", since=18)
def col2im(call: Call, x: Tensor, image: Tensor, block: Tensor) -> Tensor:
    """Blocks [N, C*prod(block), L] as an image [N, C, *image]; where they overlap they add up."""
    image_shape, block_shape = tuple(integers(image)), tuple(integers(block))
    rank = len(image_shape)
    strides = call.integers("strides", (1,) * rank)
    dilations = call.integers("dilations", (1,) * rank)
    pads = call.integers("pads", (0,) * 2 * rank)
    begins, ends = pads[:rank], pads[rank:]
    if rank == 2 and begins == ends:
        return F.fold(x, image_shape, block_shape, dilations, begins, strides)
    padded = [n + b + e for n, b, e in zip(image_shape, begins, ends, strict=True)]
    places = _block_places(padded, block_shape, strides, dilations).to(x.device)
    channels = x.shape[1] // math.prod(block_shape)
    made = x.new_zeros(x.shape[0], channels, math.prod(padded))
    made = made.index_add(2, places, x.reshape(x.shape[0], channels, -1))
    made = made.reshape(x.shape[0], channels, *padded)
    for axis, (begin, n) in enumerate(zip(begins, image_shape, strict=True), start=2):
        made = made.narrow(axis, begin, n)
    return made


def _block_places(
    padded: list[int],
    block: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> Tensor:
    """Where in the flat padded image each element lies, by element of the block, then block."""
    places = torch.zeros(1, 1, dtype=torch.int64)
    weights = [*itertools.accumulate(reversed(padded[1:]), lambda a, b: a * b, initial=1)][::-1]
    sizes = zip(padded, block, strides, dilations, weights, strict=True)
    for size, kernel, stride, dilation, weight in sizes:
        blocks = (size - dilation * (kernel - 1) - 1) // stride + 1
        inside = torch.arange(kernel).unsqueeze(1) * dilation
        along = (inside + torch.arange(blocks) * stride) * weight  # [kernel, blocks]
        places = places[:, None, :, None] + along[None, :, None, :]
        places = places.reshape(places.shape[0] * kernel, -1)
    return places.reshape(-1)
