"""Operators whose channels come last, as ONNX Runtime lays out some graphs.

Each is ONNX's operator of the same meaning, between two changes of layout. Weights stay as
ONNX has them: [M, C / group, kH, kW].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.microsoft.activations import activate_by_params
from graphmem.sources.onnx.rules.microsoft.of_onnx import MICROSOFT, onnx_rule

INTERNAL = "com.ms.internal.nhwc"


def channels_first(x: Tensor) -> Tensor:
    """[N, ..., C] as [N, C, ...], a view."""
    return x.movedim(-1, 1)


def channels_last(x: Tensor) -> Tensor:
    """[N, C, ...] as [N, ..., C], with memory in that order."""
    return x.movedim(1, -1).contiguous()


@rule(
    *("BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool"),
    *("AveragePool", "GlobalLpPool", "GlobalMaxPool", "GridSample", "InstanceNormalization"),
    *("LRN", "LpPool", "MaxPool", "QLinearConv", "SpaceToDepth"),
    domain=INTERNAL,
)
def same_in_onnx(call: Call, x: Tensor, *rest: Any) -> Any:
    """ONNX's operator of the same name and opset; the first input and the output change."""
    y = onnx_rule(call, call.node.op, channels_first(x), *rest, version=call.version)
    if call.node.op == "Conv":
        y = activate_by_params(call, y)
    if isinstance(y, tuple):
        return tuple(channels_last(v) if _is_image(v, x) else v for v in y)
    return channels_last(y)


def _is_image(value: Any, x: Tensor) -> bool:
    return isinstance(value, Tensor) and value.dim() == x.dim()


@rule("MaxUnpool", domain=INTERNAL)
def max_unpool(call: Call, x: Tensor, indices: Tensor, *shape: Tensor) -> Any:
    """ONNX's MaxUnpool; the indices have their channels last, too."""
    places = channels_first(indices)
    first = onnx_rule(call, "MaxUnpool", channels_first(x), places, *shape, version=call.version)
    return channels_last(first)


@rule("Resize", domain=INTERNAL)
def resize(call: Call, x: Tensor, roi: Tensor | None = None, *sizes: Tensor | None) -> Tensor:
    """ONNX's Resize: scales and sizes are in the order of [N, ..., C], the region is not.

    Source: onnxruntime/core/optimizer/layout_transformation/layout_transformation.cc.
    """
    given = [None if s is None else _first_in(s, x.dim()) for s in sizes]
    made = onnx_rule(call, "Resize", channels_first(x), roi, *given, version=call.version)
    return channels_last(made)


def _first_in(values: Tensor, rank: int) -> Tensor:
    """A number for each dimension, in the order of [N, C, ...]."""
    if values.shape[0] != rank:
        return values
    return torch.cat((values[:1], values[-1:], values[1:-1]))


@rule("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def nhwc_conv(
    call: Call, x: Tensor, w: Tensor, b: Tensor | None = None, z: Tensor | None = None
) -> Tensor:
    """``activation(conv(x, w, b) + z)``: x, z and the result are [N, H, W, C]."""
    y = channels_last(onnx_rule(call, "Conv", channels_first(x), w, b))
    return activate_by_params(call, y if z is None else y + z)


@rule("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(call: Call, x: Tensor) -> Tensor:
    """MaxPool of [N, H, W, C], of int8 and uint8 only in ONNX Runtime."""
    pooled: Tensor = onnx_rule(call, "MaxPool", channels_first(x))
    return channels_last(pooled)
