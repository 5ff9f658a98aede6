"""Muon for matrices and AdamW for everything else, as Muon is used.

Muon's step is for the matrices between embedding and head; torch's class takes parameters of
two dimensions only. Embeddings (and a head that is tied to one), vectors and convolutions go
to AdamW.

Source: torch/optim/_muon.py, ``Muon`` (torch 2.13), whose documentation says so; Jordan 2024,
Muon: an optimizer for hidden layers in neural networks. (It gives a head of its own to AdamW
as well: name one in ``adamw``.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Muon, Optimizer

from graphmem.trace.optim.base import evaluated
from graphmem.trace.optim.hints import Hints


class MuonAndAdamW(Optimizer):
    """Two optimizers as one.

    Args:
        adamw: a part of the names of matrices that AdamW takes too, such as ``lm_head``.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 1e-3,
        adamw: str = "",
        hints: Hints | None = None,
    ) -> None:
        parameters = list(params)
        super().__init__(parameters, {"lr": lr})
        known = hints or Hints()

        def is_hidden(parameter: nn.Parameter) -> bool:
            named = bool(adamw) and adamw in known.names.get(id(parameter), "")
            return parameter.dim() == 2 and id(parameter) not in known.embeddings and not named

        hidden = [p for p in parameters if is_hidden(p)]
        others = [p for p in parameters if not is_hidden(p)]
        self._parts: list[Optimizer] = [Muon(hidden, lr=lr)] if hidden else []
        self._parts += [AdamW(others, lr=lr)] if others else []

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One after the other."""
        loss = evaluated(closure)
        for part in self._parts:
            part.step()
        return loss
