"""ViT-Small of timm."""

from __future__ import annotations

import timm
from torch import nn

from graphmem.sources.inputs import InputSpec


def vit_small(batch: int = 8) -> tuple[nn.Module, InputSpec]:
    """ViT-Small/16 on images of 224 x 224."""
    model: nn.Module = timm.create_model("vit_small_patch16_224", pretrained=False)
    return model, InputSpec((batch, 3, 224, 224))
