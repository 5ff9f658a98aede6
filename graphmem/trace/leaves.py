"""Leaves: tensors of the user's own that require a gradient and that no module holds.

The step and its optimizer know such a tensor by the same object, so what is exchanged is
inside of it: for the time of a trace it is hollow, if an optimizer steps it or if it lies on
the meta device, where no gradient of a trace would fit. Its gradient is the user's again
afterwards in any case.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem.trace.adopt import StandIns


@dataclass(frozen=True, slots=True)
class _Kept:
    """A leaf, its gradient from before the trace, and what holds its data meanwhile."""

    leaf: Tensor
    gradient: Tensor | None
    original: Tensor | None


class Leaves:
    """Makes leaves hollow, and gives them back."""

    def __init__(self, stand_ins: StandIns) -> None:
        self._stand_ins = stand_ins
        self._kept: list[_Kept] = []

    def take(self, tensor: Tensor, *, optimized: bool) -> bool:
        """Exchange a tensor, unless it needs none: no leaf, or a module's, or taken before.

        Args:
            optimized: an optimizer of the user's steps it.

        Returns:
            Whether it is hollow now.
        """
        is_loose = tensor.is_leaf and tensor.requires_grad and tensor.layout is torch.strided
        if not is_loose or self._stand_ins.knows(tensor):
            return False
        gradient, original = tensor.grad, None
        if optimized or tensor.is_meta:
            tensor.grad = None
            original = _exchange(tensor, self._stand_ins.hollow(tensor))
            self._stand_ins.stands_for_itself(tensor)
            tensor.grad = None if gradient is None else self._stand_ins.of(gradient)
        self._kept.append(_Kept(tensor, gradient, original))
        return original is not None

    def restore(self) -> None:
        """Give every leaf its data and its gradient back."""
        for kept in self._kept:
            kept.leaf.grad = None
            if kept.original is not None:
                with suppress(RuntimeError):  # of a meta tensor whose graph the step has kept
                    _exchange(kept.leaf, kept.original)
            kept.leaf.grad = kept.gradient
        self._kept.clear()


def _exchange(leaf: Tensor, data: Tensor) -> Tensor:
    """Put other data into a leaf; a tensor that holds what was there."""
    if leaf.is_meta == data.is_meta:
        original = leaf.data
        leaf.data = data
        return original
    # ``data`` refuses another kind of device; the objects must have no weak references.
    torch.utils.swap_tensors(leaf, data)
    return data
