"""segmentation-models-pytorch: each architecture, and U-Net on each of its encoders."""

from __future__ import annotations

from typing import Any

from graphmem.options import Mode
from graphmem.sources import InputSpec
from graphmem.sources.building import Built
from graphmem.sources.inputs import ModelInputs
from tools.sweeping.case import BATCH, BuiltCase

_SIDE = 128
_ENCODERS = ("resnet34", "efficientnet-b0", "mobilenet_v2", "mit_b0", "tu-convnext_tiny")
_ON_VIT = "tu-vit_tiny_patch16_224"
"""What DPT, whose encoders are vision transformers of timm, is tried on."""


def names() -> list[str]:
    """``architecture/encoder``."""
    import segmentation_models_pytorch as models

    all_on_some = [
        f"{architecture}/{encoder}"
        for architecture in models.MODEL_ARCHITECTURES_MAPPING
        for encoder in ((_ON_VIT,) if architecture == "dpt" else _ENCODERS)
    ]
    unets = [f"unet/{encoder}" for encoder in models.encoders.get_encoder_names()]
    return list(dict.fromkeys(all_on_some + unets))


def case(name: str) -> BuiltCase:
    """One architecture on one encoder, of images [B, 3, 128, 128] (what a ViT fixes: 224)."""
    architecture, _, encoder = name.partition("/")
    side = 224 if encoder == _ON_VIT else _SIDE

    def build(mode: Mode) -> Built:
        import segmentation_models_pytorch as models

        made: Any = models.create_model(architecture, encoder, encoder_weights=None)
        return made, ModelInputs((InputSpec((BATCH, 3, side, side)),))

    return BuiltCase(name, build)
