"""GPT-2 of transformers, with four layers and with all of them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel


def gpt2_4_layers(batch: int = 2, seq: int = 256) -> tuple[nn.Module, dict[str, Tensor]]:
    """GPT-2 small with 4 of its 12 layers, and labels."""
    return _gpt2(4, batch, seq)


def gpt2_small(batch: int = 2, seq: int = 256) -> tuple[nn.Module, dict[str, Tensor]]:
    """GPT-2 small, and labels."""
    return _gpt2(12, batch, seq)


def _gpt2(layers: int, batch: int, seq: int) -> tuple[nn.Module, dict[str, Tensor]]:
    config = GPT2Config(n_layer=layers)
    ids = torch.randint(config.vocab_size, (batch, seq))  # [B, S]
    return GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids.clone()}
