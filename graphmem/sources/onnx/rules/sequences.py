"""Sequences, which are Python lists, and optionals, which are the value or None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmem.errors import ModelLoadError
from graphmem.sources.onnx import bounds
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.values import integer, integers


@rule("SequenceEmpty", since=11)
def sequence_empty(call: Call) -> list[Any]:
    """A sequence of nothing."""
    return []


@rule("SequenceConstruct", since=11)
def sequence_construct(call: Call, *items: Any) -> list[Any]:
    """A sequence of all inputs."""
    return list(items)


@rule("SequenceLength", since=11)
def sequence_length(call: Call, sequence: list[Any]) -> Tensor:
    """The number of elements, a scalar int64, known in a trace."""
    return torch.tensor(len(sequence))


@rule("SequenceAt", since=11)
def sequence_at(call: Call, sequence: list[Any], position: Tensor) -> Any:
    """The element at a position; the largest one where that is not known."""
    place = _place(call, position, lambda: max(range(len(sequence)), key=_sizes(sequence)))
    return sequence[place]


@rule("SequenceInsert", since=11)
def sequence_insert(
    call: Call, sequence: list[Any], item: Any, position: Tensor | None = None
) -> list[Any]:
    """A longer sequence; without a position the element comes last."""
    place = len(sequence) if position is None else _place(call, position, lambda: len(sequence))
    return [*sequence[:place], item, *sequence[place:]]


@rule("SequenceErase", since=11)
def sequence_erase(call: Call, sequence: list[Any], position: Tensor | None = None) -> list[Any]:
    """A shorter sequence, by default without the last; where that is not known, the smallest."""
    place = len(sequence) - 1
    if position is not None:
        place = _place(call, position, lambda: min(range(len(sequence)), key=_sizes(sequence)))
    return [item for i, item in enumerate(sequence) if i != place % len(sequence)]


def _place(call: Call, position: Tensor, bound: Callable[[], int]) -> int:
    return bounds.or_bound(
        lambda: integer(position),
        bound,
        call,
        what="a position in a sequence",
        assumed="the one with which the sequence or element is largest",
    )


def _sizes(sequence: list[Any]) -> Callable[[int], int]:
    def size(place: int) -> int:
        item = sequence[place]
        return int(item.nbytes) if isinstance(item, Tensor | np.ndarray) else 0

    return size


@rule("SplitToSequence", since=11)
def split_to_sequence(call: Call, x: Any, split: Tensor | None = None) -> list[Any]:
    """Parts along ``axis``: of given sizes, of one size, or single slices."""
    axis = call.integer("axis", 0)
    total = int(x.shape[axis])
    if split is None:
        parts = _split(x, [1] * total, axis)
        return parts if call.integer("keepdims", 1) else [part.squeeze(axis) for part in parts]
    sizes = integers(split)
    if split.dim() == 0:
        sizes = [min(sizes[0], total - start) for start in range(0, total, sizes[0])]
    return _split(x, sizes, axis)


def _split(x: Any, sizes: list[int], axis: int) -> list[Any]:
    if isinstance(x, np.ndarray):
        return list(np.split(x, np.cumsum(sizes)[:-1], axis))
    return list(torch.split(x, sizes, axis))


@rule("ConcatFromSequence", since=11)
def concat_from_sequence(call: Call, sequence: list[Any]) -> Any:
    """All elements one after the other along ``axis``, or along a new one."""
    axis, new = call.integer("axis"), call.integer("new_axis", 0)
    if isinstance(sequence[0], np.ndarray):
        return np.stack(sequence, axis) if new else np.concatenate(sequence, axis)
    return torch.stack(sequence, axis) if new else torch.cat(sequence, axis)


@rule("Optional", since=15)
def optional(call: Call, value: Any = None) -> Any:
    """The value, or nothing."""
    return value


@rule("OptionalHasElement", since=15)
def optional_has_element(call: Call, value: Any = None) -> Tensor:
    """Whether there is a value, a scalar bool."""
    return torch.tensor(value is not None)


@rule("OptionalGetElement", since=15)
def optional_get_element(call: Call, value: Any = None) -> Any:
    """The value.

    Raises:
        ModelLoadError: there is none.
    """
    if value is None:
        raise ModelLoadError(f"node {call.node.name} (OptionalGetElement): the optional is empty")
    return value
