"""One parameter after another, as the optimizers of these packages step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


def evaluated(closure: Callable[[], Any] | None) -> Any:
    """The loss of a step's closure, if there is one."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


class OneByOne(Optimizer):
    """An optimizer that makes a parameter's states at its first step and then updates it."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float, **defaults: Any) -> None:
        super().__init__(params, {"lr": lr, **defaults})

    def new_states(self, parameter: Tensor, group: dict[str, Any]) -> dict[str, Any]:
        """The states of a parameter."""
        raise NotImplementedError

    def update(self, parameter: Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        """Update a parameter that has a gradient: here as a fused kernel, without memory."""
        assert parameter.grad is not None
        parameter.add_(parameter.grad, alpha=-group["lr"])

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """As every optimizer's."""
        loss = evaluated(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state.update(self.new_states(parameter, group))
                self.update(parameter, state, group)
        return loss
