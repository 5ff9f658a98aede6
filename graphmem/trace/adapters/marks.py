"""Marks on parameters, which their stand-ins in a trace carry too."""

from __future__ import annotations

from torch import Tensor, nn

KEEPS_DTYPE = "keeps_dtype"
"""Of a parameter that ``precision`` does not convert: adapters and tables are in fp32."""


def keeps_dtype(tensor: Tensor) -> bool:
    """Whether a tensor is marked so."""
    return bool(getattr(tensor, KEEPS_DTYPE, False))


def table(data: Tensor, stands_for: int = 0) -> nn.Parameter:
    """A frozen parameter of a packed weight, which stands for so many elements."""
    made = nn.Parameter(data, requires_grad=False)
    setattr(made, KEEPS_DTYPE, True)
    made.stands_for = stands_for  # type: ignore[attr-defined]
    return made
