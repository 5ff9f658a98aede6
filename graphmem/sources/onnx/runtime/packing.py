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


def packs(node: Node) -> bool:
    """Whether it is known what the kernel packs."""
    return (node.domain, node.op) in _RULES


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
        self._first: dict[tuple[object, ...], list[tuple[Weight, bytes | None]]] = {}

    def marked(self, node: Node, weight: Weight, made: Packed) -> Packed:
        """What a kernel packs, marked as freed where another has packed the same."""
        if not made.nbytes or not made.is_shared:
            return made
        turned = node.attributes.get("transB", node.attributes.get("transposeB", 0))
        key = (node.domain, node.op, turned, weight.element, weight.shape, made.nbytes)
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
