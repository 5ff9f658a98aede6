"""What a rule says of a node that it can't compute."""

from __future__ import annotations

from graphmem.errors import UnsupportedOpError
from graphmem.sources.onnx.registry import Call


def refused(call: Call, why: str) -> UnsupportedOpError:
    """An error in one line: the node, why there is no result, and what the user can do."""
    return UnsupportedOpError(
        f"node {call.node.name} ({call.node.kind}): {why}; give a rule with --rules FILE.py"
    )
