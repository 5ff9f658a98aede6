"""Master weights: fp32 copies of half-precision parameters, which the optimizer works on.

What is simulated is the loop of Megatron-LM's ``Float16OptimizerWithFloat16Params``
(megatron/optimizer/optimizer.py) without contiguous gradient buffers, and of apex's O2:

1. Before the first step every trainable parameter of half precision gets an fp32 copy; the
   optimizer is given the copies (other trainable parameters as they are), so its states are
   fp32.
2. After backward, ``copy.grad = parameter.grad.float()`` and ``parameter.grad = None``, one
   parameter after another: at first all half-precision gradients stand, at last all fp32
   ones. Accumulated micro-batches are summed in half precision, before that.
3. Gradients are clipped, and with fp16 unscaled by the GradScaler, in fp32; the optimizer
   steps.
4. All copies are copied into their parameters, in place. The fp32 gradients live until the
   next ``zero_grad``.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

_HALF = (torch.bfloat16, torch.float16)


class MasterWeights:
    """The fp32 copies of a model's trainable half-precision parameters.

    Args:
        parameters: all parameters of the model.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        trainable = [p for p in parameters if p.requires_grad]
        self.copies = {p: _copied(p) for p in trainable if p.dtype in _HALF}
        self.optimized = [self.copies.get(p, p) for p in trainable]

    def take_gradients(self) -> None:
        """Give every copy its parameter's gradient in fp32, and the parameter none."""
        for parameter, copy in self.copies.items():
            if parameter.grad is not None:
                copy.grad = parameter.grad.float()
                parameter.grad = None

    @torch.no_grad()
    def give_back(self) -> None:
        """Copy all copies into their parameters."""
        if self.copies:
            torch._foreach_copy_(list(self.copies), list(self.copies.values()))


def _copied(parameter: nn.Parameter) -> nn.Parameter:
    return nn.Parameter(parameter.detach().float())
