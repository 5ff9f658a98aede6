"""Adam-mini: Adam's first state, and one second value for a whole block of a parameter.

What a block is, is decided by the parameter's name, in this order:

1. ``bias``: no block, the second state is as large as the parameter.
2. Queries and keys (``q_proj``, ``k_proj``, ``wq``, ``wk``, ``query``, ``key``): a head, that
   is hidden * hidden / heads elements.
3. Embedding, output, value, projection and MLP (``embed``, ``wte``, ``lm_head``, ``v_proj``,
   ``o_proj``, ``mlp`` and others): a row.
4. All others: the whole parameter.

Without a configuration that tells hidden and heads, queries and keys are cut into rows. (The
package asks for both and has no other way.) Of temporaries, the squares of the gradient are as
large as the parameter, and at last the scaled first state and its negative.

Source: adam_mini/adam_mini.py, ``Adam_mini.__init__`` and ``step`` (adam-mini 1.1.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from graphmem.trace.optim.base import OneByOne
from graphmem.trace.optim.hints import Hints

_WHOLE = ("bias",)
_HEADS = ("k_proj", "q_proj", "wq", "wk", "query", "key")
_ROWS = (
    *("embed", "embd", "wte", "lm_head", "output", "final_layer", "v_proj", "wv", "value"),
    *("o_proj", "wo", "attn.proj", "feed_forward", "linear", "mlp"),
)


class AdamMini(OneByOne):
    """Adam-mini on one GPU."""

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        hints: Hints | None = None,
    ) -> None:
        super().__init__(params, lr, betas=betas, weight_decay=weight_decay)
        self._hints = hints or Hints()

    def new_states(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The first state, and one value a block."""
        name = self._hints.names.get(id(parameter), "")
        first = torch.zeros_like(parameter)
        if any(word in name for word in _WHOLE):
            return {"first": first, "second": torch.zeros_like(parameter)}
        shape: tuple[int, ...] = (1, parameter.numel())
        if any(word in name for word in (*_HEADS, *_ROWS)) and parameter.dim() > 1:
            shape = self._blocks(name, parameter)
        first = first.view(shape)
        return {"first": first, "second": torch.zeros_like(first[:, :1])}

    def _blocks(self, name: str, parameter: Tensor) -> tuple[int, ...]:
        """The parameter's shape as blocks: [blocks, elements of one]."""
        hidden, heads = self._hints.hidden, self._hints.heads
        if any(word in name for word in _HEADS) and hidden and heads:
            head = hidden * hidden // heads
            if parameter.numel() % head == 0:
                return (parameter.numel() // head, head)
        rows = parameter.shape[0]
        return (rows, parameter.numel() // rows)

    def update(self, parameter: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Both averages, and a step of the first one scaled by the second."""
        first, second = state["first"], state["second"]
        assert parameter.grad is not None
        gradient = parameter.grad.view(first.shape)
        (beta1, beta2), lr = group["betas"], group["lr"]
        squares = gradient * gradient
        if second.shape != first.shape:
            squares = squares.mean(dim=1, keepdim=True)
        second.mul_(beta2).add_(squares, alpha=1 - beta2)
        del squares
        parameter.mul_(1 - lr * group["weight_decay"])
        first.lerp_(gradient, 1 - beta1)
        change = first / second.sqrt().add_(1e-8)
        parameter.add_(-change.view(parameter.shape).mul_(lr))
