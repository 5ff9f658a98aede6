"""What a session holds in its arena before the first run: small initializers, packed weights.

Initializers of more than 127 bytes stay where the graph has them, outside of the arena. Some
kernels pack a constant weight when the session begins; the initializer itself is given up
then, if nothing else reads it (``session.disable_prepacking`` off, the default). What two
kernels of one operator pack to the same bytes is held once: the second is packed, found to be
the same, and freed.

Source: ``kSmallTensorExternalDataThreshold`` in
onnxruntime/core/framework/tensorprotoutils.h, and the measurements of ``packers``.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from graphmem.sources.onnx.model import Node, Weight
from graphmem.sources.onnx.runtime.packers import FLOAT_RULES, Constants, Packed
from graphmem.sources.onnx.runtime.packers_quantized import QUANTIZED_RULES

SMALL_BYTES = 127
"""Initializers up to this size are copied into the arena."""

_RULES = {**FLOAT_RULES, **QUANTIZED_RULES}


def packed(node: Node, constants: Constants) -> dict[int, Packed]:
    """What a kernel takes to pack its weights, by the position of the input."""
    rule = _RULES.get((node.domain, node.op))
    if rule is None:
        return {}
    found = {position: rule(node, position, constants) for position in constants.weights}
    return {position: made for position, made in found.items() if made is not None}


class Repeats:
    """Which packed weights are the same as one before, by their values."""

    def __init__(self) -> None:
        self._seen: dict[tuple[object, ...], _Seen] = {}

    def marked(self, node: Node, weight: Weight, made: Packed) -> Packed:
        """What a kernel packs, marked as freed where another has packed the same."""
        if not made.nbytes or not made.is_shared:
            return made
        turned = node.attributes.get("transB", node.attributes.get("transposeB", 0))
        key = (node.domain, node.op, turned, weight.element, weight.shape, made.nbytes)
        is_known = self._seen.setdefault(key, _Seen()).has(weight)
        return replace(made, is_freed=True) if is_known else made


class _Seen:
    """The weights that were packed in one way; a single one is not read."""

    def __init__(self) -> None:
        self._weights: dict[int, Weight] = {}
        self._digests: set[bytes] = set()

    def has(self, weight: Weight) -> bool:
        """Whether a weight or one of the same values was there before; it is from now on."""
        if id(weight) in self._weights:
            return True
        self._weights[id(weight)] = weight
        if len(self._weights) == 1:
            return False
        if len(self._weights) == 2:
            self._add(next(iter(self._weights.values())))
        return self._add(weight)

    def _add(self, weight: Weight) -> bool:
        digest = _digest(weight)
        if digest is None or digest in self._digests:
            return digest is not None
        self._digests.add(digest)
        return False


def _digest(weight: Weight) -> bytes | None:
    """The values of a weight, in short; None where there are none to compare."""
    array = weight.read()
    return None if array is None else sha256(array.tobytes()).digest()
