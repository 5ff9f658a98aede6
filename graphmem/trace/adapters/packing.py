"""``--quantize nf4``: which weights are packed, and how, as transformers does with bitsandbytes.

All nn.Linear are, except the output embeddings, what is tied to others, and the module with
the last parameter. (Of a model that is not of transformers, all are.)

Source: transformers/quantizers/base.py, ``get_keys_to_not_convert``; integrations/
bitsandbytes.py, ``replace_with_bnb_linear`` (5.24).
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum, unique
from typing import Any, cast

import torch
from torch import nn

from graphmem.errors import UsageError
from graphmem.options import choice
from graphmem.trace.adapters.packed import Packed4bit, Packed8bit, nested_levels


@unique
class Packing(StrEnum):
    """How weights are packed; ``double`` packs the tables of 4-bit weights too."""

    NF4 = "nf4"
    NF4_DOUBLE = "nf4-double"
    FP4 = "fp4"
    FP4_DOUBLE = "fp4-double"
    INT8 = "int8"

    @staticmethod
    def of(text: str) -> Packing:
        """The packing that a user named.

        Raises:
            UsageError: with the nearest.
        """
        return choice(Packing, text, "quantize")


def pack(model: nn.Module, packing: Packing, dtype: torch.dtype | None) -> None:
    """Exchange a model's nn.Linear for packed ones, in place.

    Args:
        dtype: what ``precision`` converts the model to; None keeps its own.

    Raises:
        UsageError: if there is none.
    """
    kept = _kept(model)
    linear = [
        (parent, name, module)
        for parent in model.modules()
        for name, module in parent.named_children()
        if _is_linear(module) and module not in kept
    ]
    if not linear:
        raise UsageError("quantize: the model has no nn.Linear whose weights could be packed")
    levels = nested_levels() if packing.endswith("double") else None
    for parent, name, module in linear:
        plain = _as_linear(module)
        made = (
            Packed8bit(plain) if packing is Packing.INT8 else Packed4bit(plain, levels, dtype=dtype)
        )
        made.train(module.training)
        setattr(parent, name, made)


def _is_linear(module: nn.Module) -> bool:
    """Whether a module is an nn.Linear, or transformers' Conv1D, which is one transposed."""
    return type(module) is nn.Linear or (
        type(module).__name__ == "Conv1D" and type(module).__module__.startswith("transformers.")
    )


def _as_linear(module: Any) -> nn.Linear:
    if isinstance(module, nn.Linear):
        return module
    width, count = module.weight.shape
    made = nn.Linear(width, count, bias=False, device="meta", dtype=module.weight.dtype)
    made.register_parameter("bias", module.bias)
    return made


def _kept(model: nn.Module) -> set[nn.Module]:
    """The nn.Linear that stay as they are."""
    if not hasattr(model, "get_output_embeddings"):
        return set()
    users = Counter(id(p) for m in model.modules() for p in m._parameters.values() if p is not None)
    kept = {m for m in model.modules() if any(users[id(p)] > 1 for p in m._parameters.values())}
    head = cast(Any, model).get_output_embeddings()
    if isinstance(head, nn.Module):
        kept.add(head)
    *_, (last, _) = model.named_parameters()
    kept.add(model.get_submodule(last.rpartition(".")[0]))
    return kept
