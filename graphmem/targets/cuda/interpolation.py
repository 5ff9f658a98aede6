"""Interpolation: copies of inputs that are neither row-major nor channels-last.

Source: aten/src/ATen/native/cuda/UpSampleBilinear2d.cu, UpSampleNearest2d.cu,
UpSampleBicubic2d.cu, UpSampleTrilinear3d.cu, UpSampleLinear1d.cu and UpSampleNearest3d.cu.
"""

from __future__ import annotations

from graphmem.options import Target
from graphmem.schedule import Scratch
from graphmem.targets.cuda.calls import row_or_channels_last_bytes
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
    return ((row_or_channels_last_bytes(call.args[0]),),)
