"""The LoRA layer that peft has around a packed base layer.

It copies the result of a 4-bit layer before it adds its own, and casts what it adds to the
result's dtype before, where the layer around an ordinary one casts the sum.

Source: peft/tuners/lora/bnb.py, ``Linear4bit.forward`` and ``Linear8bitLt.forward``
(peft 0.21).
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import Tensor

from graphmem.trace.adapters.packed import Packed4bit


def around_packed(peft: Any) -> type[Any]:
    """The class, made of peft's own layer around an nn.Linear."""
    linear: Any = importlib.import_module(f"{peft.__name__}.tuners.lora.layer").Linear

    class LoraAroundPacked(linear):  # type: ignore[misc]
        """A packed base layer with adapters."""

        def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            """x: [..., K] -> [..., N]."""
            result: Tensor = self.base_layer(x)
            if isinstance(self.base_layer, Packed4bit):
                result = result.clone()
            for name in self.active_adapters:
                if name in self.lora_A:
                    result = result + self._added(name, x, result.dtype)
            return result

        def _added(self, name: str, x: Tensor, dtype: torch.dtype) -> Tensor:
            first, second = self.lora_A[name], self.lora_B[name]
            casts = not torch.is_autocast_enabled()
            x = x.to(first.weight.dtype) if casts else x
            added: Tensor = second(first(self.lora_dropout[name](x))) * self.scaling[name]
            return added.to(dtype) if casts else added

    return LoraAroundPacked
