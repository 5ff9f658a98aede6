"""How a kernel slides over the spatial axes of convolutions and pools.

Sizes are of spatial axes only, outermost first; an input is [N, C, *sizes].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx.refusal import refused
from graphmem.sources.onnx.registry import Call

MOST_AXES = 3
"""Torch has convolutions and pools of one to three spatial axes."""


@dataclass(frozen=True, slots=True)
class Sliding:
    """Per spatial axis: the kernel's size, its steps, and the padding before and after."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """How far a dilated kernel reaches."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def is_symmetric(self) -> bool:
        """Whether torch's own padding, the same on both sides, is enough."""
        return self.before == self.after and min(self.before, default=0) >= 0

    @property
    def is_within_half(self) -> bool:
        """Whether no padding is wider than half of the kernel, which torch's pools ask for."""
        return all(2 * p <= k for p, k in zip(self.before, self.kernel, strict=True))

    def results(self, sizes: Sequence[int], *, ceil: bool = False) -> tuple[int, ...]:
        """How many positions the kernel takes.

        With ``ceil`` it may end outside, but starts inside of the input or the padding
        before it. Source: the operators' documentation, and
        onnx/reference/ops/op_pool_common.py, get_output_shape_explicit_padding.
        """
        found = []
        for axis, size in enumerate(sizes):
            stride = self.strides[axis]
            room = size + self.before[axis] + self.after[axis] - self.extents[axis]
            count = (-(-room // stride) if ceil else room // stride) + 1
            if ceil and (count - 1) * stride >= size + self.before[axis]:
                count -= 1
            found.append(count)
        return tuple(found)

    def fitted(self, sizes: Sequence[int], results: Sequence[int]) -> Sliding:
        """With the padding after that the last position reaches to; negative if it is cut."""
        after = tuple(
            (count - 1) * stride + extent - size - before
            for count, stride, extent, size, before in zip(
                results, self.strides, self.extents, sizes, self.before, strict=True
            )
        )
        return replace(self, after=after)


def sliding(call: Call, sizes: Sequence[int], kernel: Sequence[int]) -> Sliding:
    """What a node's attributes say about its kernel.

    ``SAME_UPPER`` and ``SAME_LOWER`` pad so that there is a result for each stride, an odd
    one at the end or at the beginning.

    Raises:
        UnsupportedOpError: there are more spatial axes than torch has kernels for.
    """
    axes = len(sizes)
    check_axes(call, axes)
    ones = (1,) * axes
    made = Sliding(
        kernel=tuple(kernel),
        strides=call.integers("strides", ones),
        dilations=call.integers("dilations", ones),
        before=(0,) * axes,
        after=(0,) * axes,
    )
    same = call.text("auto_pad", "NOTSET")
    if same in ("SAME_UPPER", "SAME_LOWER"):
        totals = [
            max((math.ceil(size / stride) - 1) * stride + extent - size, 0)
            for size, stride, extent in zip(sizes, made.strides, made.extents, strict=True)
        ]
        return split_padding(made, totals, more_after=same == "SAME_UPPER")
    if same == "VALID":
        return made
    pads = call.integers("pads", (0,) * (2 * axes))
    return replace(made, before=pads[:axes], after=pads[axes:])


def split_padding(made: Sliding, totals: Sequence[int], *, more_after: bool) -> Sliding:
    """With so much padding in all, of which the odd one lies after or before."""
    less = tuple(total // 2 for total in totals)
    more = tuple(total - part for total, part in zip(totals, less, strict=True))
    before, after = (less, more) if more_after else (more, less)
    return replace(made, before=before, after=after)


def check_axes(call: Call, axes: int) -> None:
    """Refuse more or fewer spatial axes than torch has kernels for.

    Raises:
        UnsupportedOpError: there are.
    """
    if not 1 <= axes <= MOST_AXES:
        raise refused(call, f"{axes} spatial axes, but torch has kernels for 1 to {MOST_AXES}")


def pad(x: Tensor, made: Sliding, value: float = 0.0) -> Tensor:
    """The input [N, C, *sizes] with its padding as part of it; negative padding cuts."""
    if not any(made.before) and not any(made.after):
        return x
    pairs = zip(reversed(made.before), reversed(made.after), strict=True)
    return F.pad(x, [side for pair in pairs for side in pair], value=value)


def without_padding(made: Sliding) -> Sliding:
    """As it slides over an input that holds its padding."""
    zeros = (0,) * len(made.kernel)
    return replace(made, before=zeros, after=zeros)
