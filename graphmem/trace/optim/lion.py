"""Lion: one momentum a parameter, of its dtype, and two temporaries as large as it.

The update is the sign of a blend of momentum and gradient, for which the momentum is copied
and the gradient added out of place.

Source: lion_pytorch/lion_pytorch.py, ``update_fn`` and ``Lion.step`` (lion-pytorch 0.2.5);
Chen et al. 2023, Symbolic Discovery of Optimization Algorithms, algorithm 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from graphmem.trace.optim.base import OneByOne


class Lion(OneByOne):
    """Lion, one parameter after another."""

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, betas=betas, weight_decay=weight_decay)

    def new_states(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The momentum."""
        return {"momentum": torch.zeros_like(parameter)}

    def update(self, parameter: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Decay the weights, go in the blend's direction, decay the momentum."""
        gradient, momentum = parameter.grad, state["momentum"]
        assert gradient is not None
        (first, second), lr = group["betas"], group["lr"]
        parameter.mul_(1 - lr * group["weight_decay"])
        blend = (momentum * first).add(gradient, alpha=1 - first)
        parameter.add_(blend.sign_(), alpha=-lr)
        momentum.mul_(second).add_(gradient, alpha=1 - second)
