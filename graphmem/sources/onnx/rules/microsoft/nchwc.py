"""Convolutional networks in blocks of channels, as ONNX Runtime's CPU kernels take them.

ONNX Runtime holds a value of [N, C, H, W] as [N, C / b, H, W, b] with C padded to a multiple of
b, and goes on calling its shape [N, C, H, W]. Here such a value keeps that shape and plain
order, so the bytes are the same; only the weights, which the file has in blocks, are reordered.
Source: onnxruntime/core/optimizer/nchwc_transformer.cc, onnxruntime/core/mlas/lib/reorder.cpp.
"""

from __future__ import annotations

import platform

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.microsoft.activations import activate_by_params
from graphmem.sources.onnx.rules.microsoft.nhwc import channels_first
from graphmem.sources.onnx.rules.microsoft.of_onnx import onnx_rule

NCHWC = "com.microsoft.nchwc"


def own_block_size() -> int:
    """The block that ONNX Runtime takes on this machine: 16 with AVX-512 and on Arm, else 8.

    Source: onnxruntime/core/mlas/lib/platform.cpp, NchwcBlockSize, and mlasi.h.
    """
    if platform.machine().lower() in ("aarch64", "arm64"):
        return 16
    return 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8


def block_size(channels: int) -> int:
    """The block of a file with so many (padded) channels: this machine's, if it divides them."""
    own = own_block_size()
    return own if channels % own == 0 else 8


def plain_weight(w: Tensor) -> Tensor:
    """A filter in blocks as [O, I, kH, kW]; the tensor's shape says that already.

    In memory it is [O / b, I / b, kH, kW, b of I, b of O], or [O / b, I, kH, kW, b of O] where
    b does not divide I: there are fewer input channels, or one to a group.
    """
    out, inputs, *kernel = w.shape
    b = block_size(out)
    if inputs % b:
        blocks = w.reshape(out // b, inputs, *kernel, b)
        return blocks.movedim(-1, 1).reshape(w.shape)
    blocks = w.reshape(out // b, inputs // b, *kernel, b, b)
    return blocks.permute(0, 5, 1, 4, 2, 3).reshape(w.shape)


@rule("Conv", domain=NCHWC)
def conv(
    call: Call, x: Tensor, w: Tensor, b: Tensor | None = None, total: Tensor | None = None
) -> Tensor:
    """``activation(conv(x, w, b) + total)``; x is in blocks, or plain if it has few channels."""
    y = onnx_rule(call, "Conv", x, plain_weight(w), b)
    return activate_by_params(call, y if total is None else y + total)


@rule("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", domain=NCHWC)
def pool(call: Call, x: Tensor) -> Tensor:
    """ONNX's pooling."""
    pooled: Tensor = onnx_rule(call, call.node.op, x)
    return pooled


@rule("ReorderInput", domain=NCHWC)
def reorder_input(call: Call, x: Tensor) -> Tensor:
    """Pad the channels of [N, C, H, W] (or of [N, H, W, C]) to a multiple of the block."""
    first = channels_first(x) if call.integer("channels_last", 0) else x
    padding = -first.shape[1] % own_block_size()
    return F.pad(first, (0, 0, 0, 0, 0, padding)).contiguous()


@rule("ReorderOutput", domain=NCHWC)
def reorder_output(call: Call, x: Tensor) -> Tensor:
    """The first ``channels`` of [N, C, H, W], last if ``channels_last``; a copy."""
    kept = x[:, : call.integer("channels")]
    if call.integer("channels_last", 0):
        kept = kept.movedim(1, -1)
    return kept.clone(memory_format=torch.contiguous_format)


@rule("Upsample", domain=NCHWC)
def upsample(call: Call, x: Tensor) -> Tensor:
    """Larger by whole numbers, of the nearest element or linearly in between."""
    scales = torch.tensor(call.integers("scales"), dtype=torch.float32)
    made: Tensor = onnx_rule(call, "Resize", x, None, scales, version=13, nearest_mode="floor")
    return made
