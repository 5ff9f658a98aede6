"""What kernels of quantized operators pack of a constant weight, on x86-64.

With AVX2 or AVX-512, with and without VNNI, and with AMX: those are what ONNX Runtime 1.31.1 was
measured on. Processors with VNNI for two signed operands (``avx_vnni_int8``), and ARM's have
kernels with other layouts.

Sources: ``MlasGemmPackBSize`` in onnxruntime/core/mlas/lib/qgemm.cpp, and the dispatch of
platform.cpp: what it packs depends on the signs of both operands.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import Node, Weight
from graphmem.sources.onnx.runtime.packers import Constants, Packed, Rule

_COLUMNS = 16  # MLAS_QGEMM_STRIDEN_THREAD_ALIGN
_BUFFER = 64  # MlasGetPreferredBufferAlignment
_ROWS = {ElementType.UINT8: 2, ElementType.INT8: 4}
"""The rows of B that lie together, for an unsigned A: ``PackedK`` of MLAS_GEMM_U8U8_KERNEL_AVX2
and MLAS_GEMM_U8S8_KERNEL_AVX2."""

_AMX_ROWS = 64
"""Those of a signed B with AMX: ``PackedK`` of MLAS_GEMM_U8S8_KERNEL_AMX in
core/mlas/lib/qgemm_kernel_amx.cpp, a tile's bytes. Measured: [80, 100] takes 112 * (128 + 4)."""


def packed_bytes(
    columns: int,
    depth: int,
    left: ElementType | None,
    right: ElementType,
    *,
    has_amx: bool = False,
) -> int:
    """The bytes of a packed matrix [depth, columns] of bytes, with the sum of each column.

    0: it is not packed, as where the left operand is signed.
    """
    if left is not ElementType.UINT8 or right not in _ROWS:
        return 0
    rows = _AMX_ROWS if has_amx and right is ElementType.INT8 else _ROWS[right]
    return _up(_up(columns, _COLUMNS) * (_up(depth, rows) + 4), _BUFFER)


def _up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


class _Positions(NamedTuple):
    """Where an operator has A, and its weight B."""

    left: int
    right: int


def _product(at: _Positions, *, quantizes: bool = False) -> Rule:
    """A product with a constant matrix.

    Args:
        quantizes: it makes unsigned bytes of its left operand itself.

    Source: ``MatMulIntegerBase::PrePack`` in core/providers/cpu/quantization/matmul_integer_base.h;
    what it turns first lies in the arena for that long.
    """

    def packs(node: Node, position: int, constants: Constants) -> Packed | None:
        weight = constants.weights[position]
        if position != at.right or len(weight.shape) != 2:
            return None
        depth, columns = weight.shape
        is_turned = node.op == "QGemm" and bool(node.attributes.get("transB"))
        if is_turned:
            depth, columns = columns, depth
        left = ElementType.UINT8 if quantizes else constants.elements.get(at.left)
        nbytes = packed_bytes(columns, depth, left, weight.element, has_amx=constants.has_amx)
        temporary = weight.nbytes if is_turned else 0
        return Packed(nbytes, temporary=temporary) if nbytes or temporary else None

    return packs


def _convolution(node: Node, position: int, constants: Constants) -> Packed | None:
    """A convolution packs its filter [M, C / group, ...], and reorders it where it can't.

    Of a group that is packed there is a reordered copy for that long. All are reserved but what
    is packed for the symmetric convolution, as measured.
    Source: ``QLinearConv<ActType>::PrePack`` in core/providers/cpu/quantization/qlinearconv.cc.
    """
    weight = constants.weights[position]
    if position != 3 or len(weight.shape) <= 2:
        return None
    groups = int(node.attributes.get("group", 1))
    outside, inside, size = weight.shape[0], weight.shape[1], math.prod(weight.shape[2:])
    if outside % groups:
        return None
    symmetric = symmetric_bytes(groups, weight, constants)
    if symmetric:
        return Packed(symmetric, in_region=True, is_shared=False)
    each = outside // groups
    left = constants.elements.get(0)
    nbytes = packed_bytes(each, inside * size, left, weight.element, has_amx=constants.has_amx)
    if not nbytes or inside == each == 1:
        return Packed(weight.nbytes)
    return Packed(groups * nbytes, temporary=each * inside * size)


def symmetric_bytes(groups: int, weight: Weight, constants: Constants) -> int:
    """The bytes of a filter for the convolution that needs no zero point; 0 if it is not that.

    Its input is unsigned, its filter signed, both zero points are constant, and the filter's
    are all 0 (taken to be so where the file with their values is missing).
    Source: ``MlasConvSymPackWSize`` in core/mlas/lib/convsym.cpp, with AVX-512.
    """
    input_zero, filter_zero = constants.weights.get(2), constants.weights.get(5)
    is_mixed = constants.elements.get(0) is ElementType.UINT8 and weight.element is ElementType.INT8
    if not is_mixed or input_zero is None or filter_zero is None:
        return 0
    values = filter_zero.read()
    if input_zero.numel != 1 or (values is not None and values.any()):
        return 0
    outside, inside, size = weight.shape[0], weight.shape[1], math.prod(weight.shape[2:])
    if groups > 1:
        is_depthwise = inside == 1 and outside == groups and groups % 16 == 0
        return groups * size if is_depthwise else 0
    if outside < 16 or inside % 4 or outside % 4:
        return 0
    return _up(outside, 16) * inside * size


def _attention(node: Node, position: int, constants: Constants) -> Packed | None:
    """QAttention packs its weight [input, 3 * hidden], each head of Q, K and V alone.

    Source: ``QAttention<T>::PrePack`` in contrib_ops/cpu/quantization/attention_quant.cc.
    """
    weight = constants.weights[position]
    if position != 1 or len(weight.shape) != 2:
        return None
    heads, hidden = int(node.attributes["num_heads"]), weight.shape[1] // 3
    if not hidden or hidden % heads or weight.shape[1] != 3 * hidden:
        return None
    left = constants.elements.get(0)
    columns, depth = hidden // heads, weight.shape[0]
    nbytes = packed_bytes(columns, depth, left, weight.element, has_amx=constants.has_amx)
    return Packed(3 * heads * nbytes) if nbytes else None


def _of_bits(node: Node, position: int, constants: Constants) -> Packed | None:
    """MatMulNBits packs its weight [N, blocks, bytes of a block], for fp32 operands.

    For integer arithmetic (accuracy level 4) the scales and the sum of each block lie behind it.
    Source: ``MatMulNBits<T1>::PrePack`` in contrib_ops/cpu/quantization/matmul_nbits.cc,
    ``MlasQNBitGemmPackQuantBDataSize`` in core/mlas/lib/qnbitgemm.cpp; measured with 2, 4 and 8
    bits.
    """
    if position != 1 or not packs_bits(node, constants):
        return None
    columns, blocks = int(node.attributes["N"]), bit_blocks(node)
    size, bits = int(node.attributes["block_size"]), int(node.attributes.get("bits", 4))
    nbytes = columns * blocks * (size * bits // 8)
    if node.attributes.get("accuracy_level", 0) == _INTEGERS:
        nbytes += 4 * blocks * (columns + _up(columns, _COLUMNS)) + 2 * (_BUFFER - 1)
    return Packed(nbytes)


def bit_blocks(node: Node) -> int:
    """The blocks of each column that MatMulNBits has one scale for."""
    return -(-int(node.attributes["K"]) // int(node.attributes["block_size"]))


def packs_bits(node: Node, constants: Constants) -> bool:
    """Whether MatMulNBits has a kernel for a packed weight: else it is made fp32 in each run."""
    zero = constants.elements.get(3)
    if 4 in constants.elements or zero not in (None, ElementType.UINT8):
        return False
    is_integer = node.attributes.get("accuracy_level", 0) == _INTEGERS
    return is_integer or int(node.attributes.get("bits", 4)) == 4


_INTEGERS = 4
"""``accuracy_level``: the left operand is made of bytes."""

_MICROSOFT = "com.microsoft"
QUANTIZED_RULES: dict[tuple[str, str], Rule] = {
    ("", "MatMulInteger"): _product(_Positions(0, 1)),
    ("", "QLinearMatMul"): _product(_Positions(0, 3)),
    (_MICROSOFT, "QGemm"): _product(_Positions(0, 3)),
    (_MICROSOFT, "MatMulIntegerToFloat"): _product(_Positions(0, 1)),
    (_MICROSOFT, "DynamicQuantizeMatMul"): _product(_Positions(0, 1), quantizes=True),
    ("", "QLinearConv"): _convolution,
    (_MICROSOFT, "QLinearConv"): _convolution,
    (_MICROSOFT, "QAttention"): _attention,
    (_MICROSOFT, "MatMulNBits"): _of_bits,
}
