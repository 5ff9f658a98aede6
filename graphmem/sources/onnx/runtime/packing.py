"""What a session holds in its arena before the first run: small initializers, packed weights.

Initializers of more than 127 bytes stay where the graph has them, outside of the arena. Some
kernels pack a constant weight when the session begins; the initializer itself is given up
then, if nothing else reads it (``session.disable_prepacking`` off, the default). What two
kernels of one operator pack to the same bytes is held once: the second is packed, found to be
the same, and freed.

Sources: ``kSmallTensorExternalDataThreshold`` in
onnxruntime/core/framework/tensorprotoutils.h; ``PrePack`` of each kernel; ``MlasGemmPackBSize``
in onnxruntime/core/mlas/lib/sgemm.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import Node, Weight

SMALL_BYTES = 127
"""Initializers up to this size are copied into the arena."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A packed weight: its bytes, whether they come from a region, and are freed at once.

    Most kernels reserve (``IAllocator::MakeUniquePtr`` with ``use_reserve``), others allocate.
    """

    nbytes: int
    in_region: bool = False
    is_freed: bool = False


Rule = Callable[[Node, int, Weight], Packed | None]


def packed(node: Node, weights: Mapping[int, Weight]) -> dict[int, Packed]:
    """What a kernel packs, by the position of the input."""
    rule = _RULES.get((node.domain, node.op))
    if rule is None:
        return {}
    found = {p: rule(node, p, w) for p, w in weights.items() if w.element is ElementType.FLOAT}
    return {position: made for position, made in found.items() if made is not None}


class Repeats:
    """Which packed weights are the same as one before, by their values."""

    def __init__(self) -> None:
        self._first: dict[tuple[object, ...], list[tuple[Weight, bytes | None]]] = {}

    def marked(self, node: Node, weight: Weight, made: Packed) -> Packed:
        """What a kernel packs, marked as freed where another has packed the same."""
        turned = node.attributes.get("transB", node.attributes.get("transposeB", 0))
        key = (node.domain, node.op, turned, weight.shape, made.nbytes)
        known = self._first.setdefault(key, [])
        if any(other is weight for other, _ in known):
            return replace(made, is_freed=True)
        known.append((weight, None))
        if len(known) == 1:
            return made
        self._first[key] = known = [(w, _digest(w) if d is None else d) for w, d in known]
        mine = known[-1][1]
        is_known = mine is not None and any(digest == mine for _, digest in known[:-1])
        return replace(made, is_freed=is_known)


def _digest(weight: Weight) -> bytes | None:
    """The values of a weight, in short; None where there are none to compare."""
    array = weight.read()
    return None if array is None else sha256(array.tobytes()).digest()


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


_MICROSOFT = "com.microsoft"
_RULES: dict[tuple[str, str], Rule] = {
    ("", "MatMul"): _matrix,
    ("", "Gemm"): _matrix,
    (_MICROSOFT, "FusedMatMul"): _matrix,
    (_MICROSOFT, "FusedGemm"): _matrix,
    ("", "LSTM"): _recurrent,
    ("", "GRU"): _gru,
    ("", "ConvTranspose"): _transposed,
}
