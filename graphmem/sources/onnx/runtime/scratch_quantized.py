"""What quantized kernels allocate for themselves while they run.

With the integer kernels of x86-64, see ``packers_quantized``.
"""

from __future__ import annotations

import math

from graphmem.sources.onnx.model import Node
from graphmem.sources.onnx.runtime.calls import NONE, Rule, Scratch, Shapes, broadcast
from graphmem.sources.onnx.runtime.packers_quantized import (
    QUANTIZED_RULES,
    bit_blocks,
    packs_bits,
    symmetric_bytes,
)


def _product(node: Node, shapes: Shapes) -> Scratch:
    """The product in int32, before it is quantized again.

    Source: ``QLinearMatMul::Compute`` in core/providers/cpu/quantization/quantize_linear_matmul.cc.
    """
    made = shapes.made(0)
    return NONE if made is None else Scratch((4 * math.prod(made),))


def _gemm(node: Node, shapes: Shapes) -> Scratch:
    """Turned operands, before the output; then the product in int32 where the output is bytes.

    Source: ``QGemm::Compute`` in contrib_ops/cpu/quantization/quant_gemm.cc.
    """
    left, right, made = shapes.given(0), shapes.given(3), shapes.made(0)
    if left is None or right is None or made is None:
        return NONE
    turned = [math.prod(left)] if node.attributes.get("transA") else []
    if node.attributes.get("transB") and not _is_packed(node, shapes, 3):
        turned.append(math.prod(right))
    product = [4 * math.prod(made)] if shapes.has(7) else []
    return Scratch((*turned, *product), before=len(turned))


def _is_packed(node: Node, shapes: Shapes, position: int) -> bool:
    """Whether the weight there is held in another form."""
    if not shapes.packs or position not in shapes.constants.weights:
        return False
    made = QUANTIZED_RULES[node.domain, node.op](node, position, shapes.constants)
    return made is not None and made.nbytes > 0


def _quantized_first(node: Node, shapes: Shapes) -> Scratch:
    """The left operand in bytes, before the output.

    Source: ``DynamicQuantizeMatMul::Compute`` in contrib_ops/cpu/quantization/
    dynamic_quantize_matmul.cc.
    """
    given = shapes.given(0)
    return NONE if given is None else Scratch((math.prod(given),), before=1)


def _convolution(node: Node, shapes: Shapes) -> Scratch:
    """The reordered filter, the product in int32, both ends turned, and the expanded input.

    A depthwise or symmetric convolution has pointers to its input instead of expanding it, and
    a symmetric one no product; if its channels come last it works on all images at once.
    Source: ``QLinearConv<ActType>::Compute`` in core/providers/cpu/quantization/qlinearconv.cc.
    """
    given, weight, made = shapes.given(0), shapes.given(3), shapes.made(0)
    if given is None or weight is None or made is None or 0 in made:
        return NONE
    is_last = bool(node.attributes.get("channels_last"))
    groups, kernel = int(node.attributes.get("group", 1)), math.prod(weight[2:])
    positions = math.prod(made[1:-1] if is_last else made[2:])
    is_packed = _is_packed(node, shapes, 3)
    is_symmetric = is_packed and _is_symmetric(groups, shapes)
    is_depthwise = weight[1] == 1 and weight[0] == groups
    blocks = [] if is_packed else [math.prod(weight)]
    blocks += [] if is_symmetric else [4 * weight[0] * positions]
    if not is_last:
        blocks += [math.prod(given[1:]), weight[0] * positions]
    images = given[0] if is_symmetric and is_last else 1
    if is_depthwise:
        blocks.append(8 * kernel * positions * images)
    elif kernel != 1 or not _is_plain(node):
        depth = weight[1] * kernel * (groups if len(weight) > 4 else 1)
        blocks.append((8 * kernel * images if is_symmetric else depth) * positions)
    return Scratch(tuple(blocks))


def _is_symmetric(groups: int, shapes: Shapes) -> bool:
    return symmetric_bytes(groups, shapes.constants.weights[3], shapes.constants) > 0


def _is_plain(node: Node) -> bool:
    """Whether a convolution has no strides and no padding."""
    strides, pads = node.attributes.get("strides", ()), node.attributes.get("pads", ())
    return all(s == 1 for s in strides) and not any(pads)


def _integer_convolution(node: Node, shapes: Shapes) -> Scratch:
    """The expanded input of one group of one image, unless it is pointwise.

    Source: ``ConvInteger::Compute`` in core/providers/cpu/quantization/conv_integer.cc.
    """
    weight, made = shapes.given(1), shapes.made(0)
    if weight is None or made is None:
        return NONE
    kernel = math.prod(weight[2:])
    if kernel == 1 and _is_plain(node):
        return NONE
    return Scratch((weight[1] * kernel * math.prod(made[2:]),))


def _where(node: Node, shapes: Shapes) -> Scratch:
    """What is chosen of either side, before the output: [condition and that side, broadcast].

    Source: ``QLinearWhere::Compute`` in contrib_ops/cpu/quantization/qlinear_where.cc.
    """
    condition, first, second = (shapes.given(position) for position in (0, 1, 4))
    if condition is None or first is None or second is None:
        return NONE
    sides = (broadcast(condition, first), broadcast(condition, second))
    return Scratch(tuple(math.prod(side) for side in sides), before=2)


def _softmax(node: Node, shapes: Shapes) -> Scratch:
    """Along another dimension than the last: the input turned, and the result before turning.

    Source: ``QLinearSoftmax::ComputeImplOpset13`` in contrib_ops/cpu/quantization/
    qlinear_softmax.cc.
    """
    given = shapes.given(0)
    if given is None or int(node.attributes.get("opset", 13)) < 13:
        return NONE
    axis = int(node.attributes.get("axis", -1))
    return NONE if axis in (-1, len(given) - 1) else Scratch((math.prod(given),) * 2)


def _average_pool(node: Node, shapes: Shapes) -> Scratch:
    """The input in fp32.

    Source: ``QLinearAveragePool::ComputeImpl`` in contrib_ops/cpu/quantization/qlinear_pool.cc.
    """
    given = shapes.given(0)
    return NONE if given is None else Scratch((4 * math.prod(given),))


def _max_pool(node: Node, shapes: Shapes) -> Scratch:
    """A pointer for each element of the kernel and each position of one image [N, ..., C].

    Source: ``NhwcMaxPool<T8Bits>::Compute`` in contrib_ops/cpu/quantization/nhwc_max_pool.cc.
    """
    made = shapes.made(0)
    kernel = math.prod(node.attributes.get("kernel_shape", ()))
    return NONE if made is None else Scratch((8 * kernel * math.prod(made[1:-1]),))


def _of_bits(node: Node, shapes: Shapes) -> Scratch:
    """The left operand in bytes, with a scale and a sum for each block; or the weight in fp32.

    Both are reserved. Source: ``MatMulNBits<T1>::ComputeBPacked`` and ``ComputeBUnpacked`` in
    contrib_ops/cpu/quantization/matmul_nbits.cc; ``Q8BlkSize`` in core/mlas/lib/qnbitgemm.h.
    """
    given = shapes.given(0)
    if given is None:
        return NONE
    columns, depth = int(node.attributes["N"]), int(node.attributes["K"])
    if not packs_bits(node, shapes.constants) or not _is_packed(node, shapes, 1):
        return Scratch((4 * columns * depth,), is_reserved=True)
    if node.attributes.get("accuracy_level", 0) != 4:
        return NONE
    block = int(node.attributes["block_size"])
    each = block + 4 + 4  # bytes, scale and sum
    return Scratch((math.prod(given[:-1]) * bit_blocks(node) * each + 63,), is_reserved=True)


_MICROSOFT = "com.microsoft"
QUANTIZED: dict[tuple[str, str], Rule] = {
    ("", "QLinearMatMul"): _product,
    ("", "QLinearConv"): _convolution,
    ("", "ConvInteger"): _integer_convolution,
    (_MICROSOFT, "QLinearConv"): _convolution,
    (_MICROSOFT, "QGemm"): _gemm,
    (_MICROSOFT, "DynamicQuantizeMatMul"): _quantized_first,
    (_MICROSOFT, "QLinearSoftmax"): _softmax,
    (_MICROSOFT, "QLinearWhere"): _where,
    (_MICROSOFT, "QLinearAveragePool"): _average_pool,
    (_MICROSOFT, "NhwcMaxPool"): _max_pool,
    (_MICROSOFT, "MatMulNBits"): _of_bits,
}
