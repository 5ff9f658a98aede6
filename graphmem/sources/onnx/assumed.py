"""Operators without a rule: what an analysis assumes of them, and says so.

1. An output whose type and shape the file states is a new tensor of these.
2. Any other is as large as the node's largest input, and of its type.

Nothing is computed: gradients flow to the largest input through outputs of case 2, which save
nothing for backward, and end at those of case 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
import torch
from torch import Tensor

from graphmem.errors import UnsupportedOpError
from graphmem.sources.onnx import bounds
from graphmem.sources.onnx.expressions import value_of
from graphmem.sources.onnx.model import Node, TensorType
from graphmem.sources.onnx.registry import Call, Registered

_STATED = "the file's shapes; no other memory"
_LIKE_INPUT = "each output is as large as its largest input; no other memory"


class Assumed:
    """Gives rules for operators that have none (``build_module(missing=...)``).

    Args:
        sizes: of the free dimensions in the file's shapes.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = sizes

    def __call__(self, node: Node) -> Registered | None:
        """The rule of a node; None for an operator that ONNX itself does not have."""
        known = node.domain or onnx.defs.has(node.op, node.version)
        return Registered(self._run, 1, frozenset()) if known else None

    def _run(self, call: Call, *inputs: Any) -> Any:
        taken = bounds.current()
        if taken is None:
            raise UnsupportedOpError(
                f"node {call.node.label}: the operator has no rule; give one with --rules FILE.py, "
                "or with graphmem.onnx_rule in Python"
            )
        tensors = [value for value in inputs if isinstance(value, Tensor)]
        largest = max(tensors, key=lambda tensor: tensor.nbytes, default=None)
        types = [self._stated(call, name) for name in call.node.outputs]
        stated = all(types) or not call.node.outputs
        taken.note(call, "an operator without a rule", _STATED if stated else _LIKE_INPUT)
        results = tuple(self._output(call, largest, kind) for kind in types)
        return results[0] if len(results) == 1 else results

    def _stated(self, call: Call, name: str) -> tuple[list[int], torch.dtype] | None:
        """The shape and type that the file states of a value, if all of it is known."""
        known = call.types.get(name)
        if not isinstance(known, TensorType) or known.shape is None or known.element.dtype is None:
            return None
        shape = [d if isinstance(d, int) else value_of(d or "", self._sizes) for d in known.shape]
        sizes = [size for size in shape if size is not None]
        return (sizes, known.element.dtype) if len(sizes) == len(shape) else None

    def _output(
        self, call: Call, largest: Tensor | None, stated: tuple[list[int], torch.dtype] | None
    ) -> Tensor:
        if largest is None and stated is None:
            raise UnsupportedOpError(
                f"node {call.node.label}: it has no input to tell the size of its output; "
                "give a rule with --rules FILE.py"
            )
        if stated is None or (largest is not None and _is_like(largest, *stated)):
            assert largest is not None
            return largest.clone()
        shape, dtype = stated
        return torch.empty(
            shape, dtype=dtype, device=largest.device if largest is not None else None
        )


def _is_like(tensor: Tensor, shape: list[int], dtype: torch.dtype) -> bool:
    return list(tensor.shape) == shape and tensor.dtype == dtype
