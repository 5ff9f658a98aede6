"""What models of diffusers are made with and take: the parts that many have in common.

Shapes: B batch, C channels, F frames, H and W of latents or images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from graphmem.sources import InputSpec
from graphmem.sources.building import Built
from graphmem.sources.inputs import ModelInputs
from tools.sweeping.case import BATCH

TOKEN_COUNT = 8
STEP = torch.full((BATCH,), 10)
"""The time step of each sample: a number that is known."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A class of diffusers: what it is made with, and what forward takes, by name.

    ``of`` is the class, if the subject has another name; ``tiled`` if it only runs in tiles.
    """

    options: Mapping[str, Any]
    inputs: Mapping[str, Any]
    of: str | None = None
    tiled: bool = False

    def built(self, name: str) -> Built:
        """The model and its inputs."""
        import diffusers

        made = getattr(diffusers, self.of or name)(**self.options)
        if self.tiled:
            made.enable_tiling()
        return made, ModelInputs(kwargs=dict(self.inputs))


def floats(*shape: int) -> InputSpec:
    """Floats [B, ...]."""
    return InputSpec((BATCH, *shape))


def ones(*shape: int) -> torch.Tensor:
    """A mask of which nothing is masked [B, ...]."""
    return torch.ones((BATCH, *shape), dtype=torch.int64)


def image(channels: int = 3, side: int = 64) -> dict[str, Any]:
    """Images or latents [B, C, H, W], by the name that UNets and autoencoders have for them."""
    return {"sample": floats(channels, side, side)}


def clip(frames: int, channels: int = 3, side: int = 64) -> dict[str, Any]:
    """Clips [B, C, F, H, W], as ``image``."""
    return {"sample": floats(channels, frames, side, side)}


LEVELS = {"block_out_channels": (32, 64, 64, 64), "layers_per_block": 1}
TEXT = {"timestep": STEP, "encoder_hidden_states": floats(TOKEN_COUNT, 32)}
HEADS = {"num_attention_heads": 2, "num_layers": 2}
TOKENS = {"hidden_states": floats(16, 64), "encoder_hidden_states": floats(TOKEN_COUNT, 32)}
IDS = {"img_ids": torch.zeros(16, 3), "txt_ids": torch.zeros(TOKEN_COUNT, 3)}
