"""Windows of signal processing, which torch has under the same names."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.values import integer

_HAMMING = 25 / 46
"""ONNX's alpha (onnx/defs/math/defs.cc, HammingWindow); torch's own is 0.54."""


def _window(op: str, function: Callable[..., Tensor]) -> None:
    @rule(op, since=17)
    def run(call: Call, size: Tensor) -> Tensor:
        """A window [size], to be repeated or, with ``periodic=0``, symmetric."""
        dtype = ElementType(call.integer("output_datatype", ElementType.FLOAT)).dtype
        window = function(integer(size), periodic=bool(call.integer("periodic", 1)))
        return window.to(dtype)


_window("BlackmanWindow", torch.blackman_window)
_window("HannWindow", torch.hann_window)
_window("HammingWindow", partial(torch.hamming_window, alpha=_HAMMING, beta=1 - _HAMMING))
