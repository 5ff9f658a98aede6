"""What convolutions allocate for themselves while they run, in fp32."""

from __future__ import annotations

import math

from graphmem.sources.onnx.model import Node
from graphmem.sources.onnx.runtime.calls import NONE, Rule, Scratch, Shapes

_THREAD_WORK = 64 * 1024  # MLAS_SGEMM_THREAD_COMPLEXITY
_MOST_THREADS = 16  # MLAS_MAXIMUM_THREAD_COUNT
_PER_THREAD = 128 * 128  # MLAS_CONV_WORKING_BUFFER_SIZE_PER_THREAD, floats
_STRIDE_ALIGN = 16  # MLAS_SGEMM_STRIDEN_THREAD_ALIGN


def _convolution(node: Node, shapes: Shapes) -> Scratch:
    """The working buffer of a convolution in fp32 of one to three dimensions.

    Input [N, C, ...], filter [M, C / group, ...]. Pointwise ones need none; one with more
    filters than output positions expands its input as a whole, others piece by piece: with a
    buffer for each thread, which share the images and groups, or the positions of the only one.
    Source: ``MlasConvPrepare`` in onnxruntime/core/mlas/lib/convolve.cpp, and measured with
    ONNX Runtime 1.31.1 for several images and groups, on one thread and four.
    """
    given, weight, made = shapes.inputs[0], shapes.inputs[1], shapes.outputs[0]
    if given is None or weight is None or made is None or 0 in made:
        return NONE
    spatial, kernel, outside = list(given[2:]), list(weight[2:]), list(made[2:])
    group = int(node.attributes.get("group", 1))
    filters, positions = weight[0] // group, math.prod(outside)
    depth = weight[1] * math.prod(kernel)
    if len(kernel) > 3:
        return Scratch((4 * depth * positions,))
    if _is_plain(node) and _is_direct(node, weight[1], spatial, kernel):
        return NONE
    if filters > positions:
        return Scratch((4 * positions * depth,))
    calls = given[0] * group
    threads = min(shapes.threads, calls)
    if calls == 1:
        threads = _threads(filters * positions * depth, positions, shapes.threads)
    return Scratch((4 * threads * _PER_THREAD,))


def _is_plain(node: Node) -> bool:
    """Whether a convolution has no strides and no padding."""
    strides, pads = node.attributes.get("strides", ()), node.attributes.get("pads", ())
    automatic = node.attributes.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")
    return all(s == 1 for s in strides) and not any(pads) and not automatic


def _is_direct(node: Node, channels: int, spatial: list[int], kernel: list[int]) -> bool:
    """Whether the input is already the matrix that is multiplied."""
    if all(size == 1 for size in kernel):
        return True
    if len(kernel) == 1:
        spatial, kernel = [1, *spatial], [1, *kernel]
    dilated = any(d != 1 for d in node.attributes.get("dilations", ()))
    if len(kernel) != 2 or channels != 1 or dilated:
        return False
    return kernel[1] == spatial[1] or (kernel[0] == spatial[0] and kernel[1] == 1)


def _threads(work: int, positions: int, most: int) -> int:
    """The threads that share the positions of one image."""
    threads = work // _THREAD_WORK + 1 if work < _THREAD_WORK * _MOST_THREADS else _MOST_THREADS
    threads = min(threads, most)
    if threads > 1:
        stride = -(-positions // threads)
        stride = -(-stride // _STRIDE_ALIGN) * _STRIDE_ALIGN
        if stride >= positions:
            return 1
        if stride * (threads - 1) >= positions:
            return threads - 1
    return threads


def _transposed_convolution(node: Node, shapes: Shapes) -> Scratch:
    """The columns of one group of one image, in fp32.

    Input [N, C, ...], filter [C, M / group, ...].
    Source: ``ConvTranspose<float>::DoConvTranspose`` in core/providers/cpu/nn/conv_transpose.cc.
    """
    given, weight = shapes.inputs[0], shapes.inputs[1]
    if given is None or weight is None:
        return NONE
    return Scratch((4 * math.prod(weight[1:]) * math.prod(given[2:]),))


_MICROSOFT = "com.microsoft"
CONVOLUTIONS: dict[tuple[str, str], Rule] = {
    ("", "Conv"): _convolution,
    (_MICROSOFT, "FusedConv"): _convolution,
    ("", "ConvTranspose"): _transposed_convolution,
}
