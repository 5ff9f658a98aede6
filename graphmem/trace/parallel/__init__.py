"""Training on several GPUs, one rank of it.

Torch's own wrappers run in the trace, under a process group that sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from graphmem.trace.optimizers import OptimizerChoice
from graphmem.trace.session import Session


class Alone:
    """A model on one GPU: nothing is wrapped."""

    def shard(self, session: Session) -> None:
        """Before the parameters are counted: leave them as they are."""

    def shard_really(self) -> None:
        """In the place of ``shard``, for a model with weights that is to be run."""

    def called(self, model: nn.Module) -> Callable[..., Any] | None:
        """What is called in the model's place."""
        return None

    def optimizer(self, choice: OptimizerChoice) -> OptimizerChoice:
        """What makes the optimizer."""
        return choice
