"""Losses. Scores are [N, C, *sizes], labels [N, *sizes]."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx.registry import Call, rule

_NO_LABEL = -100
"""A label that is never given: ONNX ignores none by default. Source: F.nll_loss's default."""


@rule("NegativeLogLikelihoodLoss", since=12, constants=(2,))
def nll_loss(call: Call, x: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
    """The negative of each label's score, [N, *sizes], their sum or weighted mean."""
    ignored, reduction = call.integer("ignore_index", _NO_LABEL), call.text("reduction", "mean")
    return F.nll_loss(x, labels.long(), weight, ignore_index=ignored, reduction=reduction)


@rule("SoftmaxCrossEntropyLoss", since=12, constants=(2,))
def cross_entropy(call: Call, x: Tensor, labels: Tensor, weight: Tensor | None = None) -> Any:
    """The loss of a softmax's logarithm, and that logarithm, if it is asked for."""
    log = torch.log_softmax(x, dim=1)
    loss = nll_loss(call, log, labels, weight)
    return (loss, log) if call.outputs > 1 else loss
