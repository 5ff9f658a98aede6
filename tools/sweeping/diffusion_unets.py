"""UNets of diffusers, narrowed, and networks beside them."""

from __future__ import annotations

import torch

from graphmem.sources import InputSpec
from tools.sweeping.case import BATCH
from tools.sweeping.diffusion_inputs import (
    LEVELS,
    STEP,
    TEXT,
    TOKEN_COUNT,
    Subject,
    clip,
    floats,
    image,
)

UNETS: dict[str, Subject] = {
    "UNet1DModel": Subject(
        {"sample_size": 1024, "extra_in_channels": 64},
        {"sample": floats(2, 1024), "timestep": STEP},
    ),
    "UNet2DModel": Subject(LEVELS, {**image(side=32), "timestep": STEP}),
    "UNet2DConditionModel": Subject(
        {**LEVELS, "cross_attention_dim": 32}, {**image(4, 32), **TEXT}
    ),
    "UNet2DConditionModel, SDXL": Subject(
        {
            "block_out_channels": (32, 64, 64),
            "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            "transformer_layers_per_block": (1, 2, 2),
            "cross_attention_dim": 32,
            "use_linear_projection": True,
            "addition_embed_type": "text_time",
            "addition_time_embed_dim": 8,
            "projection_class_embeddings_input_dim": 80,
        },
        {
            **image(4, 32),
            **TEXT,
            "added_cond_kwargs": {"text_embeds": floats(32), "time_ids": torch.ones(BATCH, 6)},
        },
        "UNet2DConditionModel",
    ),
    "UNet3DConditionModel": Subject(
        {**LEVELS, "cross_attention_dim": 32, "attention_head_dim": 8},
        {**clip(4, 4, 32), **TEXT},
    ),
    "UNetMotionModel": Subject(
        {**LEVELS, "cross_attention_dim": 32, "num_attention_heads": 2},
        {
            **clip(4, 4, 32),
            "timestep": STEP,
            "encoder_hidden_states": InputSpec((BATCH * 4, TOKEN_COUNT, 32)),  # one a frame
        },
    ),
    "UNetSpatioTemporalConditionModel": Subject(
        {
            **LEVELS,
            "cross_attention_dim": 32,
            "num_attention_heads": 2,
            "num_frames": 2,
            "addition_time_embed_dim": 32,
            "projection_class_embeddings_input_dim": 96,
        },
        {
            "sample": floats(2, 8, 32, 32),
            "timestep": STEP,
            "encoder_hidden_states": floats(1, 32),
            "added_time_ids": torch.ones(BATCH, 3),
        },
    ),
    "Kandinsky3UNet": Subject(
        {
            "block_out_channels": (32, 64, 64, 64),
            "layers_per_block": 2,
            "time_embedding_dim": 32,
            "groups": 8,
            "attention_head_dim": 8,
            "cross_attention_dim": 32,
            "encoder_hid_dim": 32,
        },
        {**image(4, 32), **TEXT, "encoder_attention_mask": torch.ones(BATCH, TOKEN_COUNT)},
    ),
    "StableCascadeUNet": Subject(
        {
            "block_out_channels": (64, 64),
            "num_attention_heads": (2, 2),
            "down_num_layers_per_block": (1, 1),
            "up_num_layers_per_block": (1, 1),
            "conditioning_dim": 32,
            "clip_text_pooled_in_channels": 32,
        },
        {**image(16, 16), "timestep_ratio": torch.rand(BATCH), "clip_text_pooled": floats(1, 32)},
    ),
    "I2VGenXLUNet": Subject(
        {**LEVELS, "cross_attention_dim": 32, "attention_head_dim": 8},
        {
            **clip(4, 4, 32),
            **TEXT,
            "fps": torch.full((BATCH,), 8),
            "image_latents": floats(4, 4, 32, 32),
            "image_embeddings": floats(32),
        },
    ),
    "UVit2DModel": Subject(
        {
            "hidden_size": 64,
            "cond_embed_dim": 32,
            "micro_cond_encode_dim": 8,
            "micro_cond_embed_dim": 40,
            "encoder_hidden_size": 32,
            "vocab_size": 128,
            "codebook_size": 100,
            "in_channels": 64,
            "block_out_channels": 64,
            "block_num_heads": 2,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 128,
        },
        {
            "input_ids": InputSpec((BATCH, 8, 8), torch.int64, high=100),
            "encoder_hidden_states": floats(TOKEN_COUNT, 32),
            "pooled_text_emb": floats(32),
            "micro_conds": torch.ones(BATCH, 1 * 5),
        },
    ),
    "ControlNetModel": Subject(
        {**LEVELS, "cross_attention_dim": 32},
        {**image(4, 32), **TEXT, "controlnet_cond": floats(3, 256, 256)},
    ),
    "T2IAdapter": Subject({"channels": [32, 64, 64, 64]}, {"x": floats(3, 128, 128)}),
}
