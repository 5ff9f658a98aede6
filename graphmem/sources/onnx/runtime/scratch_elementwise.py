"""What element-wise kernels and normalizations allocate for themselves while they run."""

from __future__ import annotations

import math

from graphmem.sources.onnx.model import Node
from graphmem.sources.onnx.runtime.calls import NONE, Rule, Scratch, Shapes, broadcast


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


def _resize(node: Node, shapes: Shapes) -> Scratch:
    """Linear: two indices and two weights for each row and column, after the output.

    With three dimensions that are resized the indices have 8 bytes.
    Source: ``SetupUpsampleBilinear`` and ``SetupUpsampleTrilinear`` in
    core/providers/cpu/tensor/upsamplebase.h and upsample.cc.
    """
    given, made = shapes.given(0), shapes.made(0)
    if given is None or made is None or given == made or node.attributes.get("mode") != "linear":
        return NONE
    if len(made) in (2, 4):
        is_last = len(made) == 4 and given[1] != made[1]  # [N, H, W, C]
        sizes = made[1:3] if is_last else made[-2:]
        return Scratch((16 * sum(sizes),))
    return Scratch((24 * sum(made[-3:]),)) if len(made) in (3, 5) else NONE


_MICROSOFT = "com.microsoft"
ELEMENTWISE: dict[tuple[str, str], Rule] = {
    ("", "Where"): _where,
    ("", "Softmax"): _softmax,
    ("", "LogSoftmax"): _softmax,
    ("", "LRN"): _local_response,
    ("", "Resize"): _resize,
    ("", "Upsample"): _resize,
    (_MICROSOFT, "BiasGelu"): _biased_gelu,
    (_MICROSOFT, "FastGelu"): _biased_gelu,
    **{("", op): _variadic for op in ("Sum", "Max", "Min", "Mean")},
}
