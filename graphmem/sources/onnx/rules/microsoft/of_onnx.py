"""What the rules of Microsoft's domains share: those of ONNX that they build on, and results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from graphmem.errors import InvariantError
from graphmem.sources.onnx.registry import Call, find_rule

MICROSOFT = "com.microsoft"
_OPSET = 22
"""The version of ONNX's operators that are built on: the newest of Conv and of the pools."""


def onnx_rule(
    call: Call,
    op: str,
    *inputs: Any,
    version: int = _OPSET,
    origins: Sequence[int | None] | None = None,
    **attributes: Any,
) -> Any:
    """Apply ONNX's own operator within a node: with the node's attributes, and others.

    Args:
        origins: the position in the node of each input, None for one that it does not have;
            left out where they are in the same order.

    Raises:
        InvariantError: that operator has no rule.
    """
    names = call.node.inputs
    if origins is None:
        origins = [p if p < len(names) else None for p in range(len(inputs))]
    node = replace(
        call.node,
        op=op,
        domain="",
        version=version,
        inputs=tuple("" if p is None else names[p] for p in origins),
        attributes={**call.node.attributes, **attributes},
    )
    registered = find_rule(node)
    if registered is None:
        raise InvariantError(f"{call.node.kind} builds on {op} of opset {version}: it has no rule")
    held = call.weights
    weights = {n: held[p] for n, p in enumerate(origins) if p is not None and p in held}
    inner = replace(call, node=node, weights=weights)
    given = list(inputs)
    while given and given[-1] is None:
        given.pop()
    return registered.function(inner, *given)


def results(call: Call, *values: Any) -> Any:
    """As many outputs as the node has: one alone, or a tuple."""
    return values[0] if call.outputs == 1 else values[: call.outputs]
