"""Operators that ONNX Runtime's optimizer and quantizer put into models.

Their domains are com.microsoft, com.microsoft.nchwc and com.ms.internal.nhwc. What an operator
means is in ONNX Runtime's own schemas (``onnxruntime/core/graph/contrib_ops``), and where these
are silent, as measured on ONNX Runtime 1.31.1's CPU provider (tests/sources/onnx).
"""

from graphmem.sources.onnx.rules.microsoft import (
    attention,
    block_quantized,
    fused,
    gelu,
    group_query,
    nchwc,
    nhwc,
    normalization,
    packed,
    position,
    qlinear,
    quantized,
    quantized_lstm,
    tensors,
    without_tensors,
)

__all__ = [
    "attention",
    "block_quantized",
    "fused",
    "gelu",
    "group_query",
    "nchwc",
    "nhwc",
    "normalization",
    "packed",
    "position",
    "qlinear",
    "quantized",
    "quantized_lstm",
    "tensors",
    "without_tensors",
]
