"""Autoencoders of diffusers, narrowed."""

from __future__ import annotations

from tools.sweeping.case import BATCH
from tools.sweeping.diffusion_inputs import LEVELS, Subject, clip, floats, image

_DOWN_UP = {
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (32, 64, 64, 64),
    "layers_per_block": 1,
}

AUTOENCODERS: dict[str, Subject] = {
    "AutoencoderKL": Subject(_DOWN_UP, image()),
    "AsymmetricAutoencoderKL": Subject(
        {
            "down_block_types": _DOWN_UP["down_block_types"],
            "down_block_out_channels": (32, 64, 64, 64),
            "up_block_types": _DOWN_UP["up_block_types"],
            "up_block_out_channels": (32, 64, 64, 64),
        },
        image(),
    ),
    "AutoencoderTiny": Subject({}, image()),
    "AutoencoderKLFlux2": Subject({"block_out_channels": (32, 64, 64, 64)}, image()),
    "AutoencoderKLTemporalDecoder": Subject(
        {"down_block_types": ("DownEncoderBlock2D",) * 2, "block_out_channels": (32, 64)},
        {**image(), "num_frames": BATCH},
    ),
    "AutoencoderDC": Subject(
        {
            "encoder_block_out_channels": (32, 64, 64),
            "decoder_block_out_channels": (32, 64, 64),
            "encoder_block_types": ("ResBlock", "ResBlock", "EfficientViTBlock"),
            "decoder_block_types": ("ResBlock", "ResBlock", "EfficientViTBlock"),
            "encoder_layers_per_block": (1, 1, 1),
            "decoder_layers_per_block": (1, 1, 1),
            "encoder_qkv_multiscales": ((), (), (5,)),
            "decoder_qkv_multiscales": ((), (), (5,)),
            "attention_head_dim": 16,
        },
        image(),
    ),
    "VQModel": Subject({}, image(side=32)),
    "AutoencoderKLCogVideoX": Subject(
        {"block_out_channels": (32, 32, 32, 64), "layers_per_block": 1}, clip(5)
    ),
    "AutoencoderKLCosmos": Subject(
        {
            "encoder_block_out_channels": (32, 32, 32, 64),
            "decode_block_out_channels": (32, 32, 64, 64),
        }
        | {"resolution": 64, "attention_resolutions": (8,), "num_layers": 1},
        clip(9),
    ),
    "AutoencoderKLHunyuanVideo": Subject(LEVELS, clip(5)),
    "AutoencoderKLLTXVideo": Subject({"block_out_channels": (32, 32, 64, 64)}, clip(9)),
    "AutoencoderKLMagvit": Subject({"block_out_channels": [32, 32, 64, 64]}, clip(5)),
    "AutoencoderKLMochi": Subject(
        {"encoder_block_out_channels": (32, 32, 64, 64), "layers_per_block": (1, 1, 1, 1, 1)}
        | {"decoder_block_out_channels": (32, 32, 64, 64)},
        clip(6),
    ),
    "AutoencoderKLWan": Subject({"base_dim": 16}, clip(5)),
    "AutoencoderKLQwenImage": Subject({"base_dim": 16}, clip(1)),
    "AutoencoderKLAllegro": Subject(
        {"block_out_channels": (32, 32, 64, 64), "layers_per_block": 1, "sample_size": 64}
        | {
            "down_block_types": ("AllegroDownBlock3D",) * 4,
            "up_block_types": ("AllegroUpBlock3D",) * 4,
        },
        clip(8),
        tiled=True,
    ),
    "AutoencoderOobleck": Subject(
        {"encoder_hidden_size": 16, "decoder_channels": 16, "decoder_input_channels": 8},
        {"sample": floats(2, 8192)},
    ),
}
