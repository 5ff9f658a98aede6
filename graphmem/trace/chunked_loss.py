"""The loss of a causal language model in chunks: never all logits at once.

In the place of ``model(..., labels=labels).loss`` of transformers runs

    hidden = model.base_model(...)[0].flatten(0, 1)            # [tokens, D]
    labels = pad(labels, (0, 1), value=-100)[..., 1:].flatten()  # as ForCausalLMLoss shifts them
    for h, y in zip(hidden.chunk(N), labels.chunk(N)):
        total = total + checkpoint(of_chunk, h, y, use_reentrant=False)
    loss = total / (labels != -100).sum()

with ``of_chunk(h, y) = cross_entropy(head(h).float(), y, reduction="sum")``: the same loss.
A chunk's logits, their fp32 copy and their log-probabilities are let go after its forward and made
again in its backward: the checkpoint takes the head's product once more, where Liger's fused
kernel takes the gradient in forward instead. What it costs beside: the head's weight gets a
gradient from each chunk, and the later ones are added to the first, so two of them are there at
a time.

Source of the loss: transformers/loss/loss_utils.py, ``ForCausalLMLoss``; of the scheme: torchtune's
``LinearCrossEntropyLoss`` (chunks of tokens, the head inside), with a checkpoint around each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from graphmem.errors import UsageError

_IGNORED = -100
_NEUTRAL = (None, False, 0, 1)


class ChunkedLoss:
    """A causal language model whose head and loss run in chunks of tokens.

    Args:
        model: one of transformers.

    Raises:
        UsageError: if the model is none, or does more with its logits than take their loss.
    """

    def __init__(self, model: nn.Module, chunks: int) -> None:
        self._chunks = chunks
        self._base, self._head = _parts(model)

    def __call__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, Tensor]:
        """The base model's output, and the loss.

        Raises:
            UsageError: if there are no labels.
        """
        labels = kwargs.get("labels")
        if not isinstance(labels, Tensor):
            raise UsageError("chunked loss: of which labels? add --input labels=... or labels")
        output = self._base(*args, **{k: v for k, v in kwargs.items() if k != "labels"})
        return output, self._loss(output[0], labels)

    def _loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        shifted = F.pad(labels, (0, 1), value=_IGNORED)[..., 1:].flatten()
        tokens = hidden.flatten(0, 1)
        total: Any = 0
        for part in zip(tokens.chunk(self._chunks), shifted.chunk(self._chunks), strict=True):
            total = total + checkpoint(self._of_chunk, *part, use_reentrant=False)
        loss: Tensor = total / (shifted != _IGNORED).sum()
        return loss

    def _of_chunk(self, hidden: Tensor, labels: Tensor) -> Tensor:
        logits = self._head(hidden).float()
        return F.cross_entropy(logits, labels, ignore_index=_IGNORED, reduction="sum")


def _parts(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The model below the head, and the head."""
    kind = type(model).__name__
    if not _is_causal_lm(model):
        raise UsageError(f"chunked loss: {kind} is no causal language model of transformers")
    whole: Any = model
    base, head = whole.base_model, whole.get_output_embeddings()
    if base is model or not isinstance(head, nn.Linear):
        raise UsageError(f"chunked loss: {kind} has no linear head behind its base model")
    for name, value in vars(whole.config).items():
        if "logit" in name and value not in _NEUTRAL:
            raise UsageError(
                f"chunked loss: {kind} does more with its logits ({name} = {value!r}) than take "
                "their cross-entropy"
            )
    return base, head


def _is_causal_lm(model: nn.Module) -> bool:
    names = {kind.__name__ for kind in type(model).__mro__}
    kind = type(model).__name__
    return "PreTrainedModel" in names and kind.endswith(("ForCausalLM", "LMHeadModel"))
