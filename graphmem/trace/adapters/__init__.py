"""A model with frozen parts, packed base weights or adapters, as a training would have it.

The user's model is never changed: what is changed is a copy of its modules, whose parameters
are on the meta device. ``LoraSettings`` says how ``--lora`` is written, ``Packing`` how
``--quantize`` is.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from graphmem.options import Options
from graphmem.trace.adapters import of_user
from graphmem.trace.adapters.copied import copied
from graphmem.trace.adapters.frozen import freeze
from graphmem.trace.adapters.lora import LoraSettings, with_lora
from graphmem.trace.adapters.packing import Packing, pack

__all__ = ["LoraSettings", "Packing", "adapted", "elements", "freeze", "with_lora"]


def adapted(
    model: nn.Module, options: Options, dtype: torch.dtype | None
) -> tuple[nn.Module, Options]:
    """The model that the options ask for, and the options that are left to run it with.

    Args:
        dtype: the floating-point dtype that the model is converted to; None keeps its own.

    Raises:
        UsageError: in one line, if the model can't be changed so.
    """
    has_packed = of_user.has_packed(model)
    if not has_packed and (options.freeze, options.lora, options.quantize) == (None,) * 3:
        return model, options
    changed = copied(model)
    if options.freeze is not None:
        freeze(changed, options.freeze)
    if has_packed:
        of_user.exchange(changed)
    if options.quantize is not None:
        pack(changed, Packing.of(options.quantize), dtype)
    if options.lora is not None:
        changed = with_lora(changed, LoraSettings.of(options.lora), dtype)
    return changed, replace(options, freeze=None, lora=None, quantize=None)


def elements(parameter: nn.Parameter) -> int:
    """The elements of a parameter, of a packed one those that it stands for."""
    count = getattr(parameter, "stands_for", None)
    return parameter.numel() if count is None else int(count)
