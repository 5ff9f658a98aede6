"""What a kernel of ONNX Runtime's CPU provider allocates for itself while it runs.

A rule is a function of a node and the shapes of its inputs and outputs; it gives blocks in
bytes that are alive together, most of them taken after the outputs.
"""

from __future__ import annotations

from graphmem.sources.onnx.model import Node
from graphmem.sources.onnx.runtime.calls import NONE, Rule, Scratch, Shapes
from graphmem.sources.onnx.runtime.scratch_attention import ATTENTION
from graphmem.sources.onnx.runtime.scratch_convolutions import CONVOLUTIONS
from graphmem.sources.onnx.runtime.scratch_elementwise import ELEMENTWISE
from graphmem.sources.onnx.runtime.scratch_quantized import QUANTIZED
from graphmem.sources.onnx.runtime.scratch_recurrent import RECURRENT

_RULES: dict[tuple[str, str], Rule] = {
    **ATTENTION,
    **CONVOLUTIONS,
    **ELEMENTWISE,
    **QUANTIZED,
    **RECURRENT,
}


def scratch(node: Node, shapes: Shapes) -> Scratch:
    """The blocks of one call."""
    rule = _RULES.get((node.domain, node.op))
    return NONE if rule is None else rule(node, shapes)


def has_rule(node: Node) -> bool:
    """Whether a rule says what the kernel takes."""
    return (node.domain, node.op) in _RULES
