"""A stack of blocks for the command line."""

from __future__ import annotations

from torch import nn

from graphmem.sources.inputs import InputSpec
from tests.plans.test_plan import Stack


def stack(batch: int = 8) -> tuple[nn.Module, InputSpec]:
    return Stack(), InputSpec((batch, 64))
