"""What a kernel of ONNX Runtime's CPU provider allocates for itself while it runs.

A rule is a function of a node and the shapes of its inputs and outputs; it gives blocks in
bytes that are alive together, most of them taken after the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from graphmem.sources.onnx.model import Graph, Node

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scratch:
    """Blocks in bytes; the first ``before`` of them are taken before the outputs."""

    blocks: tuple[int, ...] = ()
    before: int = 0


@dataclass(frozen=True, slots=True)
class Shapes:
    """Of one call: None for what is left out or no tensor.

    ``item_bytes`` are those of an element of the first output, ``threads`` run one operator.
    """

    inputs: Sequence[Shape | None]
    outputs: Sequence[Shape | None]
    item_bytes: int = 4
    threads: int = 1

    def given(self, position: int) -> Shape | None:
        """The shape of an input."""
        return self.inputs[position] if position < len(self.inputs) else None

    def has(self, position: int) -> bool:
        """Whether an input is given."""
        return self.given(position) is not None


Rule = Callable[[Node, Shapes], Scratch]
NONE = Scratch()

_THREAD_WORK = 64 * 1024  # MLAS_SGEMM_THREAD_COMPLEXITY
_MOST_THREADS = 16  # MLAS_MAXIMUM_THREAD_COUNT
_PER_THREAD = 128 * 128  # MLAS_CONV_WORKING_BUFFER_SIZE_PER_THREAD, floats
_STRIDE_ALIGN = 16  # MLAS_SGEMM_STRIDEN_THREAD_ALIGN


def scratch(node: Node, shapes: Shapes) -> Scratch:
    """The blocks of one call."""
    rule = _RULES.get((node.domain, node.op))
    return NONE if rule is None else rule(node, shapes)


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


def _where(node: Node, shapes: Shapes) -> Scratch:
    """What is chosen of either side, before the output: [condition and that side, broadcast].

    Source: ``Where<T>::Compute`` in core/providers/cpu/tensor/where_op.cc.
    """
    condition, first, second = (shapes.given(position) for position in range(3))
    if condition is None or first is None or second is None:
        return NONE
    sides = (broadcast(condition, first), broadcast(condition, second))
    return Scratch(tuple(shapes.item_bytes * math.prod(side) for side in sides), before=2)


def _variadic(node: Node, shapes: Shapes) -> Scratch:
    """Of three inputs or more, the result of all but the last, before the output.

    The one before it, which is there for a moment longer, is larger in no case.
    Source: ``UntypedBroadcastVariadic`` in core/providers/cpu/math/element_wise_ops.cc.
    """
    given = [shape for shape in shapes.inputs if shape is not None]
    if len(given) < 3:
        return NONE
    made = given[0]
    for shape in given[1:-1]:
        made = broadcast(made, shape)
    return Scratch((shapes.item_bytes * math.prod(made),), before=1)


def _softmax(node: Node, shapes: Shapes) -> Scratch:
    """Along another dimension than the last: the input turned, and the result before turning.

    Source: ``Softmax<T>::ComputeImplOpset13`` in core/providers/cpu/math/softmax.cc.
    """
    given = shapes.given(0)
    if given is None or node.version < 13:
        return NONE
    axis = int(node.attributes.get("axis", -1))
    if axis in (-1, len(given) - 1):
        return NONE
    return Scratch((shapes.item_bytes * math.prod(given),) * 2)


def _biased_gelu(node: Node, shapes: Shapes) -> Scratch:
    """A value for each element in fp32, if there is a bias.

    Source: ``BiasGelu<T, use_approximation>::Compute`` in contrib_ops/cpu/bert/bias_gelu.cc, and
    measured with ONNX Runtime 1.31.1, which has the kernel for fp32 alone.
    """
    given = shapes.given(0)
    if given is None or not shapes.has(1):
        return NONE
    return Scratch((4 * math.prod(given),))


def _local_response(node: Node, shapes: Shapes) -> Scratch:
    """The scale of each element, and the squares of one image with a rim of channels, in fp32.

    Input [N, C, H, W].
    Source: ``LRN<float>::Compute`` in core/providers/cpu/nn/lrn.cc.
    """
    given = shapes.given(0)
    if given is None:
        return NONE
    channels = given[1] + int(node.attributes["size"]) - 1
    return Scratch((4 * math.prod(given), 4 * channels * math.prod(given[2:])))


def _lstm(node: Node, shapes: Shapes) -> Scratch:
    """The states and gates of each direction, in fp32.

    Input [S, B, I], R [directions, 4 * H, H]. Outputs that are left out are made here.
    Source: ``UniDirectionalLstm<T>::AllocateBuffers`` and ``ComputeImpl`` in
    core/providers/cpu/rnn/uni_directional_lstm.cc, ``DeepCpuLstmOp::ComputeImpl``.
    """
    given, recurrent = shapes.given(0), shapes.given(2)
    if given is None or recurrent is None:
        return NONE
    steps, batch, features = given
    hidden, state = 4 * recurrent[2], 4 * recurrent[2] * batch
    missing = [p for p in (1, 2) if p >= len(node.outputs) or not node.outputs[p]]
    blocks = [recurrent[0] * state for _ in missing]
    for direction in _directions(node):
        blocks += [hidden, hidden, state, state, state, 4 * state * steps]
        blocks += [hidden] * 4 if shapes.has(3) else []
        blocks += [4 * steps * batch * features, state * steps] if direction == "reverse" else []
        blocks += [hidden] * 3 if shapes.has(7) else []
    if not shapes.has(4):
        blocks += [4 * batch] * recurrent[0]
    return Scratch(tuple(blocks))


def _directions(node: Node) -> tuple[str, ...]:
    direction = str(node.attributes.get("direction", "forward"))
    return ("forward", "reverse") if direction == "bidirectional" else (direction,)


def broadcast(first: Shape, second: Shape) -> Shape:
    """The shape of two operands together."""
    rank = max(len(first), len(second))
    pairs = zip(_padded(first, rank), _padded(second, rank), strict=True)
    return tuple(b if a == 1 else a for a, b in pairs)


def _padded(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + shape


_MICROSOFT = "com.microsoft"
_RULES: dict[tuple[str, str], Rule] = {
    ("", "Conv"): _convolution,
    (_MICROSOFT, "FusedConv"): _convolution,
    ("", "ConvTranspose"): _transposed_convolution,
    ("", "Where"): _where,
    ("", "Softmax"): _softmax,
    ("", "LogSoftmax"): _softmax,
    ("", "LSTM"): _lstm,
    ("", "LRN"): _local_response,
    (_MICROSOFT, "BiasGelu"): _biased_gelu,
    (_MICROSOFT, "FastGelu"): _biased_gelu,
    **{("", op): _variadic for op in ("Sum", "Max", "Min", "Mean")},
}


_MEASURED: Mapping[str, frozenset[str]] = {
    "": frozenset(
        {
            *("Abs", "Add", "AveragePool", "BatchNormalization", "Cast", "Clip", "Concat"),
            *("ConstantOfShape", "Div", "Equal", "Exp", "Expand", "Gather", "Gemm"),
            *("GlobalAveragePool", "GlobalMaxPool", "Identity", "If"),
            *("LayerNormalization", "Loop", "MatMul", "MaxPool", "Mul", "Neg", "Not", "Pad", "Pow"),
            *("Reciprocal", "ReduceMax", "ReduceMean", "ReduceSum", "Relu", "Reshape", "Scan"),
            *("Shape", "Sigmoid", "Size", "Slice", "Split", "Sqrt", "Squeeze", "Sub", "Tanh"),
            *("Transpose", "Unsqueeze", "Flatten"),
        }
    ),
    _MICROSOFT: frozenset({"FusedGemm", "FusedMatMul", "QuickGelu"}),
    "com.microsoft.nchwc": frozenset(
        {"AveragePool", "Conv", "GlobalAveragePool", "MaxPool", "ReorderInput", "ReorderOutput"}
    ),
}
"""Operators whose kernels were seen to take nothing beside their outputs, packed weights and
what the rules above say: in graphs whose every profiled figure is predicted to the byte."""


def not_measured(graph: Graph) -> list[str]:
    """The operators of a graph and its bodies of whose kernels nothing is known, sorted."""
    found: set[str] = set()
    for node in graph.nodes:
        known = (node.domain, node.op) in _RULES or node.op in _MEASURED.get(node.domain, ())
        if not known:
            found.add(node.kind)
        for _, body in node.bodies():
            found.update(not_measured(body))
    return sorted(found)
