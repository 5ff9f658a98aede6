"""What kernels in fp32 pack of a constant weight when a session begins, and what a rule is.

Sources: ``PrePack`` of each kernel; ``MlasGemmPackBSize`` in onnxruntime/core/mlas/lib/sgemm.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import Node, Weight


@dataclass(frozen=True, slots=True)
class Packed:
    """A packed weight: its bytes, whether they come from a region, and are freed at once.

    Most kernels reserve (``IAllocator::MakeUniquePtr`` with ``use_reserve``), others allocate.
    ``temporary`` are the bytes of a copy that lies in a region while it is packed; with 0
    ``nbytes`` there is that copy alone, and the weight stays. Unless ``is_shared``, ONNX Runtime
    does not look whether another kernel has packed the same.
    """

    nbytes: int
    in_region: bool = False
    is_freed: bool = False
    temporary: int = 0
    is_shared: bool = True


@dataclass(frozen=True, slots=True)
class Constants:
    """What is known of a node's inputs when a session begins, by their positions.

    ``elements`` has the types of all inputs, as far as they are known; ``has_amx`` is of the
    processor.
    """

    weights: Mapping[int, Weight]
    elements: Mapping[int, ElementType]
    has_amx: bool = False


Rule = Callable[[Node, int, Constants], Packed | None]
"""What a kernel takes to pack the weight at a position."""


def _of_floats(rule: Callable[[Node, int, Weight], Packed | None]) -> Rule:
    """A rule for weights of fp32 alone."""

    def packs(node: Node, position: int, constants: Constants) -> Packed | None:
        weight = constants.weights[position]
        return rule(node, position, weight) if weight.element is ElementType.FLOAT else None

    return packs


def gemm_bytes(columns: int, depth: int) -> int:
    """The bytes of a packed matrix [depth, columns]: columns are padded to 16."""
    return -(-columns // 16) * 16 * depth * 4


def _matrix(node: Node, position: int, weight: Weight) -> Packed | None:
    """MatMul and Gemm pack a matrix that is their second input.

    Source: ``GemmPackBFp32`` in onnxruntime/core/providers/cpu/math/gemm.cc.
    """
    if position != 1 or len(weight.shape) != 2:
        return None
    depth, columns = weight.shape
    if node.attributes.get("transB"):
        depth, columns = columns, depth
    nbytes = gemm_bytes(columns, depth)
    return Packed(nbytes) if nbytes else None


def _recurrent(node: Node, position: int, weight: Weight) -> Packed | None:
    """An LSTM packs both of its weights [directions, 4 * hidden, input], each direction alone.

    Source: ``DeepCpuLstmOp::TryPackWeights`` in core/providers/cpu/rnn/deep_cpu_lstm.cc.
    """
    if position not in (1, 2) or len(weight.shape) != 3:
        return None
    directions, columns, depth = weight.shape
    return Packed(directions * gemm_bytes(columns, depth))


def _gru(node: Node, position: int, weight: Weight) -> Packed | None:
    """A GRU packs W [directions, 3 * hidden, input], and R in two parts, of 2 and 1 hidden.

    Source: ``DeepCpuGruOp::PrePack`` in core/providers/cpu/rnn/deep_cpu_gru.cc.
    """
    if position not in (1, 2) or len(weight.shape) != 3:
        return None
    directions, columns, depth = weight.shape
    if position == 1:
        return Packed(directions * gemm_bytes(columns, depth))
    parts = gemm_bytes(columns // 3 * 2, depth) + gemm_bytes(columns // 3, depth)
    return Packed(directions * parts)


def _transposed(node: Node, position: int, weight: Weight) -> Packed | None:
    """A transposed convolution turns its filter, unless each group is a row or a column.

    Source: ``ConvTranspose<float>::PrePack`` in core/providers/cpu/nn/conv_transpose.cc.
    """
    if position != 1 or len(weight.shape) <= 2:
        return None
    rows = weight.shape[0] // int(node.attributes.get("group", 1))
    columns = weight.numel // weight.shape[0] if weight.shape[0] else 0
    if rows <= 1 or columns <= 1:
        return None
    return Packed(weight.nbytes, in_region=True)


def _attention(node: Node, position: int, weight: Weight) -> Packed | None:
    """Attention packs its weight [input, hidden sizes of Q, K and V], each head alone.

    Source: ``Attention<T>::PrePack`` in contrib_ops/cpu/bert/attention.cc.
    """
    if position != 1 or len(weight.shape) != 2:
        return None
    heads = int(node.attributes["num_heads"])
    sizes = node.attributes.get("qkv_hidden_sizes") or (weight.shape[1] // 3,) * 3
    if not all(size and size % heads == 0 for size in sizes):
        return None
    return Packed(sum(heads * gemm_bytes(size // heads, weight.shape[0]) for size in sizes))


_MICROSOFT = "com.microsoft"
FLOAT_RULES: dict[tuple[str, str], Rule] = {
    key: _of_floats(rule)
    for key, rule in {
        ("", "MatMul"): _matrix,
        ("", "Gemm"): _matrix,
        (_MICROSOFT, "FusedMatMul"): _matrix,
        (_MICROSOFT, "FusedGemm"): _matrix,
        (_MICROSOFT, "Attention"): _attention,
        ("", "LSTM"): _recurrent,
        ("", "GRU"): _gru,
        ("", "ConvTranspose"): _transposed,
    }.items()
}
