"""The optimizer in the host's memory: its states, and copies of the parameters for it there.

What is simulated is torchao's ``CPUOffloadOptimizer`` (torchao/optim/cpu_offload.py) without its
streams:

1. Before the first step every trainable parameter gets a copy on the host, of its own dtype,
   or fp32 with master weights (as in DeepSpeed's ZeRO-Offload); the optimizer is given the
   copies, so its states lie there too.
2. After backward, and after clipping on the GPU, each gradient is copied to the host, into a
   buffer that stays, and the GPU's is let go, one parameter after another.
3. The optimizer steps on the host. As all its tensors are there, PyTorch's own choice is the
   for-loop.
4. Each copy is copied into its parameter, in place.

On the GPU remain parameters and, from backward to 2, gradients. Not covered: gradients that go
while backward runs (torchao's ``offload_gradients``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

_HALF = (torch.bfloat16, torch.float16)


def ignored(_: object) -> None:
    """Nobody is told in a real run."""


class HostOptimizer:
    """The host's copies of a model's trainable parameters.

    Args:
        parameters: all parameters of the model.
        master_weights: those of half precision are copied to fp32.
        lies_on_host: is told of each tensor that is made on the host.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        master_weights: bool,
        lies_on_host: Callable[[Tensor], None],
    ) -> None:
        self._lies_on_host = lies_on_host
        self._is_fp32 = master_weights
        trainable = [p for p in parameters if p.requires_grad]
        self.copies = {p: nn.Parameter(self._copied(p.detach())) for p in trainable}
        self.optimized = list(self.copies.values())

    def take_gradients(self) -> None:
        """Copy every gradient to the host, and let the GPU's go."""
        for parameter, copy in self.copies.items():
            if parameter.grad is None:
                continue
            if copy.grad is None:
                copy.grad = self._copied(parameter.grad)
            else:
                copy.grad.copy_(parameter.grad)
            parameter.grad = None

    @torch.no_grad()
    def give_back(self) -> None:
        """Copy all copies into their parameters."""
        for parameter, copy in self.copies.items():
            parameter.copy_(copy)

    def _copied(self, tensor: Tensor) -> Tensor:
        wanted = torch.float32 if self._is_fp32 and tensor.dtype in _HALF else tensor.dtype
        made = torch.empty_like(tensor, dtype=wanted)
        self._lies_on_host(made)
        return made.copy_(tensor)
