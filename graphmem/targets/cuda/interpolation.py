"""Interpolation: copies of inputs that are neither row-major nor channels-last.

Source: aten/src/ATen/native/cuda/UpSampleBilinear2d.cu, UpSampleNearest2d.cu,
UpSampleBicubic2d.cu, UpSampleTrilinear3d.cu, UpSampleLinear1d.cu and UpSampleNearest3d.cu.
"""

from __future__ import annotations

from graphmem.options import Target
from graphmem.schedule import Scratch
from graphmem.targets.cuda.calls import copy_bytes
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call, scratch

_KINDS = (
    "nearest1d",
    "nearest2d",
    "nearest3d",
    "_nearest_exact1d",
    "_nearest_exact2d",
    "_nearest_exact3d",
    "linear1d",
    "bilinear2d",
    "bicubic2d",
    "trilinear3d",
    "_bilinear2d_aa",
    "_bicubic2d_aa",
)
_OPERATORS = tuple(
    f"aten::{'_' if kind.startswith('_') else ''}upsample_{kind.lstrip('_')}{backward}"
    for kind in _KINDS
    for backward in ("", "_backward")
)


@scratch(*_OPERATORS, target=Target.CUDA)
def upsample(call: Call) -> Scratch:
    """Inputs: self or grad_output [N, C, ...], output size, ..."""
    source: Layout = call.args[0]
    return ((0 if _channels_last(source) else copy_bytes(source),),)


def _channels_last(layout: Layout) -> bool:
    """Whether the channels of a pixel lie one after another, and so on outwards."""
    order = (0, *range(2, len(layout.size)), 1)
    return not copy_bytes(
        layout._replace(
            size=tuple(layout.size[i] for i in order), stride=tuple(layout.stride[i] for i in order)
        )
    )
