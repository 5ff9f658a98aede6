"""Operators that have no meaning as tensors of known sizes: each says why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphmem.sources.onnx.refusal import refused
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.microsoft.of_onnx import MICROSOFT

_GENERATION = (
    "it runs its decoder as often as the generated text is long, which no shape tells; analyze "
    "the decoder's graph by itself"
)
REASONS: Mapping[str, str] = {
    "BeamSearch": _GENERATION,
    "GreedySearch": _GENERATION,
    "Sampling": _GENERATION,
    "WhisperBeamSearch": _GENERATION,
    "Tokenizer": "it makes strings, and how many tokens there are depends on the text",
    "EPContext": "it holds a graph compiled for one device, which only that device's driver reads",
}
"""Why an operator of com.microsoft is not translated."""


@rule(*REASONS, domain=MICROSOFT)
def refuse(call: Call, *inputs: Any) -> Any:
    """Raise the reason.

    Raises:
        UnsupportedOpError: always.
    """
    raise refused(call, REASONS[call.node.op])
