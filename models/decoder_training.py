"""The training step that the decoder of ``decoder.py`` was measured with.

As there, what is kept alive and for how long is part of the definition: the loss is
spelled out, the optimizer makes new tensors for its state, and a step's output and loss
are referenced until the next one replaces them.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn


def log_softmax(x: Tensor) -> Tensor:
    """Log-softmax over the last dimension, spelled out."""
    highest = torch.max(x, dim=-1, keepdim=True)[0]
    x = x - highest
    return x - torch.log(torch.sum(torch.exp(x), dim=-1, keepdim=True))


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """The mean cross-entropy of logits [..., vocab] at targets [...]."""
    losses = -log_softmax(logits)
    return torch.mean(torch.gather(losses, -1, targets.unsqueeze(-1)))


class DecoderAdamW(torch.optim.Optimizer):
    """AdamW in a loop over the parameters, that makes new tensors for everything.

    The default of a look-up is made whether the state exists or not, and the old state
    lives until the next parameter's is looked up.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        loss = None if closure is None else closure()
        for group in self.param_groups:
            lr, eps, decay = group["lr"], group["eps"], group["weight_decay"]
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state, grad = self.state[p], p.grad
                t = state.get("t", 1)
                p -= lr * decay * p
                old_m = state.get("m", torch.zeros_like(grad))
                old_v = state.get("v", torch.zeros_like(grad))
                m = beta1 * old_m + (1 - beta1) * grad
                v = beta2 * old_v + (1 - beta2) * torch.square(grad)
                rate = lr * math.sqrt(1 - beta2**t) / (1 - beta1**t)
                p -= rate * m / (torch.sqrt(v) + eps)
                state["t"], state["m"], state["v"] = t + 1, m, v
        return loss


def training_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ids: Tensor,
    targets: Tensor,
    autocast: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Forward, loss, backward and update, of ids and targets [batch, context].

    Gradients are left as they are: ``zero_grad`` is the loop's. ``autocast`` is the dtype
    of autocast around forward and loss. Returns the logits and the loss.
    """
    with _autocast(ids.device.type, autocast):
        output = model(ids)
        loss = cross_entropy(output, targets)
    loss.backward()
    optimizer.step()
    return output, loss


def training_loop(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    warm_up: tuple[Tensor, Tensor],
    measured: tuple[Tensor, Tensor],
    autocast: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """The loop of the measurements: five steps to warm up, then the one that counts.

    ``warm_up`` are ids and targets [5, batch, context], ``measured`` [1, batch, context].
    Returns the last step's logits and loss, whose gradients are still there. The logits of
    a step to warm up die where those of the next replace them, before its loss.
    """
    for ids, targets in zip(*warm_up, strict=True):
        with _autocast(ids.device.type, autocast):
            output = model(ids)
            loss = cross_entropy(output, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    del output, loss
    return training_step(model, optimizer, measured[0][0], measured[1][0], autocast)


def batches(vocab: int, count: int, batch: int, context: int) -> tuple[Tensor, Tensor]:
    """Random ids and targets, [count, batch, context] int64 each."""
    shape = (count, batch, context)
    return torch.randint(vocab, shape), torch.randint(vocab, shape)


def _autocast(device: str, dtype: torch.dtype | None) -> contextlib.AbstractContextManager[Any]:
    return contextlib.nullcontext() if dtype is None else torch.autocast(device, dtype)
