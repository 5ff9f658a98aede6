"""BERT-base of transformers with two layers, for masked language modelling."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM


def bert_2_layers(batch: int = 4, seq: int = 128) -> tuple[nn.Module, dict[str, Tensor]]:
    """BERT-base with 2 of its 12 layers; half of each row but the first is padding."""
    config = BertConfig(num_hidden_layers=2)
    ids = torch.randint(config.vocab_size, (batch, seq))  # [B, S]
    mask = torch.ones_like(ids)
    mask[1:, seq // 2 :] = 0
    inputs = {"input_ids": ids, "attention_mask": mask, "labels": ids.clone()}
    return BertForMaskedLM(config), inputs
