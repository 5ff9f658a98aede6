"""A copy of a model's modules: its buffers are shared, its parameters are on the meta device."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from graphmem.errors import UsageError, one_line


def copied(model: nn.Module) -> nn.Module:
    """The copy; tied parameters stay tied.

    Raises:
        UsageError: if something in the model can't be copied.
    """
    memo: dict[int, Any] = {id(buffer): buffer for buffer in model.buffers()}
    memo.update((id(parameter), _on_meta(parameter)) for parameter in model.parameters())
    try:
        return copy.deepcopy(model, memo)
    except Exception as error:  # anything that a module holds may refuse
        raise UsageError(
            f"freeze, lora and quantize change a copy of the model, and it can't be copied: "
            f"{type(error).__name__}: {one_line(error)}"
        ) from error


def _on_meta(parameter: nn.Parameter) -> nn.Parameter:
    data = torch.empty_like(parameter, device="meta")
    made = nn.Parameter(data, requires_grad=parameter.requires_grad)
    vars(made).update(vars(parameter))
    return made
