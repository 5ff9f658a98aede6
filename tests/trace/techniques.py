"""Small versions of well-known models, and what is asked of all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

_IDS = torch.randint(101, (2, 16), generator=torch.Generator().manual_seed(0))
_IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@dataclass(frozen=True)
class Small:
    """A model, its inputs, the pattern of its blocks and an operator worth keeping."""

    model: nn.Module
    inputs: Any
    blocks: str
    keep: str


def gpt2() -> Small:
    """GPT-2 with two blocks, dropout and a tied head."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=2, vocab_size=101, n_positions=16, **_SPECIAL
    )
    return Small(transformers.GPT2LMHeadModel(config), _tokens(), "transformer.h.*", "aten.addmm")


def llama() -> Small:
    """Llama with two blocks and grouped queries."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=101,
        **_SPECIAL,
    )
    return Small(transformers.LlamaForCausalLM(config), _tokens(), "model.layers.*", "aten.mm")


def vit() -> Small:
    """ViT of timm with two blocks."""
    timm = pytest.importorskip("timm")
    model = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, depth=2, embed_dim=48, num_heads=3, num_classes=5
    )
    return Small(model, _IMAGES, "blocks.*", "aten.addmm")


def resnet() -> Small:
    """ResNet of torchvision with a bottleneck in each of its four layers."""
    torchvision = pytest.importorskip("torchvision")
    kinds = torchvision.models.resnet
    model = kinds.ResNet(kinds.Bottleneck, [1, 1, 1, 1], num_classes=5, width_per_group=4)
    return Small(model, _IMAGES, "layer*.*", "aten.convolution")


_SPECIAL = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}

MODELS = {"gpt2": gpt2, "llama": llama, "vit": vit, "resnet": resnet}


def _tokens() -> dict[str, Tensor]:
    return {"input_ids": _IDS, "labels": _IDS.clone()}
