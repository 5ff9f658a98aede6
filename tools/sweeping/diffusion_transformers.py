"""Diffusion transformers of diffusers, narrowed."""

from __future__ import annotations

import torch

from graphmem.sources import InputSpec
from tools.sweeping.case import BATCH
from tools.sweeping.diffusion_inputs import (
    HEADS,
    IDS,
    STEP,
    TEXT,
    TOKEN_COUNT,
    TOKENS,
    Subject,
    floats,
    ones,
)

TRANSFORMERS: dict[str, Subject] = {
    "DiTTransformer2DModel": Subject(
        {**HEADS, "attention_head_dim": 16},
        {
            "hidden_states": floats(4, 32, 32),
            "timestep": STEP,
            "class_labels": InputSpec((BATCH,), torch.int64, high=1000),
        },
    ),
    "PixArtTransformer2DModel": Subject(
        {**HEADS, "attention_head_dim": 16, "cross_attention_dim": 32, "caption_channels": 32}
        | {"sample_size": 32},
        {
            "hidden_states": floats(4, 32, 32),
            "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
            **TEXT,
        },
    ),
    "SD3Transformer2DModel": Subject(
        {
            **HEADS,
            "attention_head_dim": 16,
            "joint_attention_dim": 32,
            "caption_projection_dim": 32,
        }
        | {"pooled_projection_dim": 48, "sample_size": 32},
        {"hidden_states": floats(16, 32, 32), "pooled_projections": floats(48), **TEXT},
    ),
    "FluxTransformer2DModel": Subject(
        {**HEADS, "num_single_layers": 2, "joint_attention_dim": 32, "pooled_projection_dim": 48},
        {**TOKENS, **IDS, "pooled_projections": floats(48), "timestep": torch.rand(BATCH)},
    ),
    "Flux2Transformer2DModel": Subject(
        {**HEADS, "num_single_layers": 2, "joint_attention_dim": 32, "in_channels": 64},
        {
            **TOKENS,
            "img_ids": torch.zeros(16, 4),
            "txt_ids": torch.zeros(TOKEN_COUNT, 4),
            "timestep": torch.rand(BATCH),
            "guidance": torch.ones(BATCH),
        },
    ),
    "ChromaTransformer2DModel": Subject(
        {**HEADS, "num_single_layers": 2, "joint_attention_dim": 32}
        | {"approximator_hidden_dim": 64, "approximator_layers": 1},
        {**TOKENS, **IDS, "timestep": torch.rand(BATCH)},
    ),
    "SanaTransformer2DModel": Subject(
        {**HEADS, "attention_head_dim": 16, "num_cross_attention_heads": 2}
        | {"cross_attention_head_dim": 16, "cross_attention_dim": 32, "caption_channels": 32},
        {"hidden_states": floats(32, 32, 32), **TEXT},
    ),
    "HunyuanDiT2DModel": Subject(
        {**HEADS, "num_layers": 4, "attention_head_dim": 16, "hidden_size": 32, "in_channels": 4}
        | {"patch_size": 2, "cross_attention_dim": 32, "cross_attention_dim_t5": 32}
        | {"pooled_projection_dim": 16, "text_len": TOKEN_COUNT, "text_len_t5": TOKEN_COUNT},
        {
            "hidden_states": floats(4, 32, 32),
            **TEXT,
            "timestep": torch.full((BATCH,), 10.0),
            "text_embedding_mask": ones(TOKEN_COUNT),
            "encoder_hidden_states_t5": floats(TOKEN_COUNT, 32),
            "text_embedding_mask_t5": ones(TOKEN_COUNT),
            "image_meta_size": torch.ones(BATCH, 6),
            "style": torch.zeros(BATCH, dtype=torch.int64),
            "image_rotary_emb": [torch.ones(256, 16), torch.ones(256, 16)],
        },
    ),
    "Lumina2Transformer2DModel": Subject(
        {"hidden_size": 192, "num_layers": 2, "num_refiner_layers": 1, "num_attention_heads": 2}
        | {"num_kv_heads": 1, "cap_feat_dim": 32, "sample_size": 32},
        {
            "hidden_states": floats(16, 32, 32),
            "timestep": torch.rand(BATCH),
            "encoder_hidden_states": floats(TOKEN_COUNT, 32),
            "encoder_attention_mask": torch.ones(BATCH, TOKEN_COUNT, dtype=torch.bool),
        },
    ),
    "AuraFlowTransformer2DModel": Subject(
        {"num_mmdit_layers": 1, "num_single_dit_layers": 2, "attention_head_dim": 16}
        | {"num_attention_heads": 2, "joint_attention_dim": 32, "caption_projection_dim": 32}
        | {"sample_size": 32},
        {"hidden_states": floats(4, 32, 32), **TEXT},
    ),
    "CogVideoXTransformer3DModel": Subject(
        {
            **HEADS,
            "attention_head_dim": 16,
            "text_embed_dim": 32,
            "max_text_seq_length": TOKEN_COUNT,
        }
        | {"sample_width": 16, "sample_height": 16, "sample_frames": 5},
        {"hidden_states": floats(2, 16, 16, 16), **TEXT},
    ),
    "CogView3PlusTransformer2DModel": Subject(
        {**HEADS, "attention_head_dim": 16, "text_embed_dim": 32, "sample_size": 32},
        {
            "hidden_states": floats(16, 32, 32),
            **TEXT,
            **dict.fromkeys(("original_size", "target_size", "crop_coords"), torch.ones(BATCH, 2)),
        },
    ),
    "CogView4Transformer2DModel": Subject(
        {**HEADS, "attention_head_dim": 16, "text_embed_dim": 32, "sample_size": 32}
        | {"rope_axes_dim": (8, 8)},
        {
            "hidden_states": floats(16, 32, 32),
            **TEXT,
            **dict.fromkeys(("original_size", "target_size", "crop_coords"), torch.ones(BATCH, 2)),
        },
    ),
    "LTXVideoTransformer3DModel": Subject(
        {**HEADS, "cross_attention_dim": 128, "caption_channels": 32},
        {
            "hidden_states": floats(2 * 16, 128),
            **TEXT,
            "encoder_attention_mask": torch.ones(BATCH, TOKEN_COUNT),
            "num_frames": 2,
            "height": 4,
            "width": 4,
        },
    ),
    "MochiTransformer3DModel": Subject(
        {**HEADS, "attention_head_dim": 32, "pooled_projection_dim": 32, "text_embed_dim": 32}
        | {"time_embed_dim": 16},
        {
            "hidden_states": floats(12, 2, 16, 16),
            **TEXT,
            "encoder_attention_mask": torch.ones(BATCH, TOKEN_COUNT, dtype=torch.bool),
        },
    ),
    "WanTransformer3DModel": Subject(
        {**HEADS, "attention_head_dim": 24, "text_dim": 32, "ffn_dim": 64},
        {"hidden_states": floats(16, 2, 16, 16), **TEXT},
    ),
    "AllegroTransformer3DModel": Subject(
        {**HEADS, "attention_head_dim": 24, "cross_attention_dim": 48, "caption_channels": 32},
        {
            "hidden_states": floats(4, 2, 16, 16),
            "timestep": STEP,
            "encoder_hidden_states": floats(1, TOKEN_COUNT, 32),
            "attention_mask": torch.ones(BATCH, 2, 16, 16),
            "encoder_attention_mask": torch.ones(BATCH, 1, TOKEN_COUNT),
        },
    ),
    "LatteTransformer3DModel": Subject(
        {**HEADS, "attention_head_dim": 16, "in_channels": 4, "patch_size": 2}
        | {"cross_attention_dim": 32, "caption_channels": 32, "sample_size": 16}
        | {"num_embeds_ada_norm": 1000, "norm_type": "ada_norm_single", "video_length": 2},
        {"hidden_states": floats(4, 2, 16, 16), **TEXT},
    ),
    "QwenImageTransformer2DModel": Subject(
        {**HEADS, "joint_attention_dim": 32},
        {
            **TOKENS,
            "encoder_hidden_states_mask": ones(TOKEN_COUNT),
            "timestep": torch.rand(BATCH),
            "img_shapes": [[(1, 4, 4)]] * BATCH,
        },
    ),
    "HunyuanVideoTransformer3DModel": Subject(
        {**HEADS, "num_single_layers": 2, "num_refiner_layers": 1, "text_embed_dim": 32}
        | {"pooled_projection_dim": 32},
        {
            "hidden_states": floats(16, 2, 16, 16),
            **TEXT,
            "encoder_attention_mask": torch.ones(BATCH, TOKEN_COUNT, dtype=torch.bool),
            "pooled_projections": floats(32),
            "guidance": torch.full((BATCH,), 1000.0),
        },
    ),
    "CosmosTransformer3DModel": Subject(
        {**HEADS, "attention_head_dim": 32, "text_embed_dim": 32, "adaln_lora_dim": 16}
        | {"max_size": (4, 32, 32)},
        {
            "hidden_states": floats(16, 2, 16, 16),
            **TEXT,
            "padding_mask": torch.zeros(1, 1, 128, 128),
        },
    ),
    "StableAudioDiTModel": Subject(
        {**HEADS, "attention_head_dim": 16, "num_key_value_attention_heads": 1}
        | {"cross_attention_dim": 32, "cross_attention_input_dim": 32}
        | {"global_states_input_dim": 32, "sample_size": 64},
        {
            "hidden_states": floats(64, 64),
            **TEXT,
            "global_hidden_states": floats(1, 32),
            "rotary_embedding": (torch.ones(65, 8), torch.ones(65, 8)),
        },
    ),
    "PriorTransformer": Subject(
        {**HEADS, "attention_head_dim": 16, "embedding_dim": 32, "num_embeddings": TOKEN_COUNT},
        {
            "hidden_states": floats(32),
            "timestep": STEP,
            "proj_embedding": floats(32),
            "encoder_hidden_states": floats(TOKEN_COUNT, 32),
            "attention_mask": torch.ones(BATCH, TOKEN_COUNT, dtype=torch.bool),
        },
    ),
    "Transformer2DModel": Subject(
        {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 32}
        | {"cross_attention_dim": 32},
        {"hidden_states": floats(32, 16, 16), "encoder_hidden_states": floats(TOKEN_COUNT, 32)},
    ),
    "TransformerTemporalModel": Subject(
        {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 32},
        {"hidden_states": floats(32, 16, 16), "num_frames": BATCH},
    ),
}
