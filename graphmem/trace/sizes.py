"""Results whose size depends on values: their layout, given how many elements are found."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphmem.targets.results import fresh
from graphmem.trace.operator import Dispatched

_aten = torch.ops.aten
_MASKS = (torch.bool, torch.uint8)
_INDEXING = (_aten.index.Tensor, _aten._unsafe_index.Tensor)

# How many places of found elements are worth computing: a detector scores 91 classes at 9 boxes
# of 100 x 100 places (RetinaNet of 800 x 800), and then picks a thousand of them.
MOST_PLACES = 1 << 24

Bound = Callable[..., int | None]


def is_plain_indexing(call: Dispatched) -> bool:
    """Whether an operator indexes by integers alone, whose values decide no size."""
    return call.func in _INDEXING and bound(call) is None


def bound(call: Dispatched) -> int | None:
    """The most elements that an operator may find; None if nothing bounds it."""
    if call.func in _INDEXING:
        masks = [i for i in call.args[1] if i is not None and i.dtype in _MASKS]
        return min(mask.numel() for mask in masks) if masks else None
    rule = _BOUNDS.get(call.func._schema.name)
    return None if rule is None else rule(*call.args, **call.kwargs)


def mask_of(call: Dispatched) -> Tensor | None:
    """The mask whose true elements are what an operator finds, as large as what it masks.

    None if there is none, or several.
    """
    if call.func in _INDEXING:
        masks = [i for i in call.args[1] if i is not None and i.dtype in _MASKS]
        return masks[0] if len(masks) == 1 else None
    if call.func._schema.name == "aten::masked_select":
        mask: Tensor = call.args[1]
        return mask.expand(torch.broadcast_shapes(call.args[0].shape, mask.shape))
    return None


def taken_from(call: Dispatched) -> tuple[Tensor, ...] | None:
    """What decides the values of a result where all elements are found; None if more does."""
    name = call.func._schema.name
    if name in ("aten::nonzero", "torchvision::nms"):
        return ()
    if name == "aten::masked_select" or (call.func in _INDEXING and mask_of(call) is not None):
        others = [] if name == "aten::masked_select" else call.args[1]
        return (call.args[0], *(i for i in others if i is not None and i.dtype not in _MASKS))
    return None


def everything(call: Dispatched) -> Tensor:
    """The result of an operator that finds all elements: as by a mask that is wholly true.

    Of ``nms`` the places of all boxes, in any order.
    """
    args, name = call.args, call.func._schema.name
    if name == "torchvision::nms":
        return torch.arange(args[0].shape[0])
    if name == "aten::nonzero":
        return torch.ones(args[0].shape, dtype=torch.bool).nonzero()
    if name == "aten::masked_select":
        whole: Tensor = args[0].masked_select(torch.ones(args[1].shape, dtype=torch.bool))
        return whole
    masks = [_all_true(index) for index in args[1]]
    taken: Tensor = call.func(args[0], masks)
    return taken


def _all_true(index: Tensor | None) -> Tensor | None:
    is_mask = index is not None and index.dtype in _MASKS
    return torch.ones(index.shape, dtype=torch.bool) if is_mask and index is not None else index


def found(call: Dispatched, count: int) -> Any:
    """The layouts of an operator's results if it finds ``count`` elements."""
    args = call.args
    if call.func in _INDEXING:
        return _indexed(args[0], args[1], count)
    return _LAYOUTS[call.func._schema.name](count, *args, **call.kwargs)


def _indexed(source: Tensor, indices: list[Tensor | None], count: int) -> Any:
    """As with integers in the place of each mask, one for each of its dimensions."""
    integers: list[Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype in _MASKS:
            position = torch.empty(count, dtype=torch.int64, device="meta")
            integers += [position] * index.dim()
        else:
            integers.append(None if index is None else _on_meta(index))
    result = _aten.index.Tensor(_on_meta(source), integers)
    return fresh(tuple(result.shape), source.dtype)


def _on_meta(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")


def _all(tensor: Tensor, *_: Any, **__: Any) -> int:
    return tensor.numel()


def _selected(tensor: Tensor, mask: Tensor) -> int:
    return math.prod(torch.broadcast_shapes(tensor.shape, mask.shape))


def _repeated(repeats: Tensor, *, output_size: int | None = None) -> int | None:
    return output_size


def _bins(tensor: Tensor, weights: Tensor | None = None, minlength: int = 0) -> int | None:
    """Who names a least length means it: as many classes as there are."""
    return minlength or None


_BOUNDS: dict[str, Bound] = {
    "aten::nonzero": _all,
    "aten::masked_select": _selected,
    "aten::_unique2": _all,
    "aten::_unique": _all,
    "aten::unique_dim": lambda tensor, dim, *_, **__: tensor.shape[dim],
    "aten::unique_consecutive": lambda tensor, inverse=False, counts=False, dim=None: (
        tensor.numel() if dim is None else tensor.shape[dim]
    ),
    "aten::unique_dim_consecutive": lambda tensor, dim, *_, **__: tensor.shape[dim],
    "aten::repeat_interleave": _repeated,
    "aten::bincount": _bins,
    "torchvision::nms": lambda boxes, scores, threshold: boxes.shape[0],
}


def _unique(
    count: int,
    tensor: Tensor,
    sorted_: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    """Values [count], places in them [as the input] and counts [count], where asked for."""
    return (
        fresh((count,), tensor.dtype),
        fresh(tuple(tensor.shape) if return_inverse else (0,), torch.int64),
        fresh((count,) if return_counts else (0,), torch.int64),
    )


def _unique_rows(
    count: int,
    tensor: Tensor,
    dim: int,
    sorted_: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Any:
    """As ``_unique``, of slices along a dimension; all three are made in any case."""
    size = list(tensor.shape)
    size[dim] = count
    places = fresh((tensor.shape[dim],), torch.int64)
    return fresh(tuple(size), tensor.dtype), places, fresh((count,), torch.int64)


def _consecutive(
    count: int,
    tensor: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    if dim is not None:
        return _unique_rows(count, tensor, dim)
    return _unique(count, tensor, True, return_inverse, return_counts)


_LAYOUTS: dict[str, Callable[..., Any]] = {
    "aten::nonzero": lambda count, tensor: _positions(count, tensor),
    "aten::masked_select": lambda count, tensor, mask: fresh((count,), tensor.dtype),
    "aten::_unique2": _unique,
    "aten::_unique": lambda count, *args, **kwargs: _unique(count, *args, **kwargs)[:2],
    "aten::unique_dim": _unique_rows,
    "aten::unique_consecutive": _consecutive,
    "aten::unique_dim_consecutive": lambda count, tensor, dim, *_, **__: _unique_rows(
        count, tensor, dim
    ),
    "aten::repeat_interleave": lambda count, *_, **__: fresh((count,), torch.int64),
    "aten::bincount": lambda count, tensor, weights=None, minlength=0: fresh(
        (count,), torch.int64 if weights is None else torch.float64
    ),
    "torchvision::nms": lambda count, *_: fresh((count,), torch.int64),
}


def _positions(count: int, tensor: Tensor) -> Any:
    """[count, dimensions], laid out dimension by dimension.

    Source: aten/src/ATen/native/TensorAdvancedIndexing.cpp, ``nonzero_out_cpu``, and
    cuda/Nonzero.cu, ``nonzero_cuda_out_impl`` (torch 2.13).
    """
    size = (count, tensor.dim())
    return fresh(size, torch.int64)._replace(stride=(1, count))
