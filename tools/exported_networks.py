"""Networks that are exported to ONNX, each with its inputs and which of their sizes are free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

Free = dict[int, str]


@dataclass(frozen=True)
class Network:
    """A network and its inputs, by name in the order of its forward.

    ``free`` are the free dimensions of each input, ``outputs`` the names of the results, and
    ``sizes`` two choices of the free dimensions to serve it with.
    """

    model: nn.Module
    inputs: Mapping[str, Tensor]
    free: Mapping[str, Free]
    outputs: tuple[str, ...] = ("y",)
    sizes: tuple[Mapping[str, int], ...] = field(default=({"batch": 1}, {"batch": 3}))

    def shapes(self, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs with these sizes."""
        return {
            name: tuple(
                sizes[self.free[name][axis]] if axis in self.free[name] else size
                for axis, size in enumerate(tensor.shape)
            )
            for name, tensor in self.inputs.items()
        }


def _spread(model: nn.Module) -> nn.Module:
    """Weights that differ from each other: exporters merge those that are equal at birth."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.02)
    return model


def _resnet50(small: bool) -> Network:
    from torchvision.models import resnet50

    images = torch.randn(2, 3, *((64, 64) if small else (224, 224)))
    return Network(_spread(resnet50()), {"x": images}, {"x": {0: "batch"}})


class _First(nn.Module):
    """A model of transformers that takes tokens, for its first result."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Any:
        return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]


class _WithPast(nn.Module):
    """GPT-2 that takes the keys and values of earlier tokens, and gives them with the new."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, *past: Tensor) -> Any:
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer, (key, value) in enumerate(zip(past[::2], past[1::2], strict=True)):
            cache.update(key, value, layer)
        made = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            past_key_values=cache,
            use_cache=True,
        )
        layers = made.past_key_values.layers
        return (made.logits, *(tensor for one in layers for tensor in (one.keys, one.values)))


_TOKENS: Free = {0: "batch", 1: "length"}
_SIZES = ({"batch": 1, "length": 100}, {"batch": 3, "length": 32})


def _tokens(model: nn.Module, vocabulary: int) -> Network:
    ids = torch.randint(0, vocabulary, (2, 64))
    return Network(
        _First(_spread(model)),
        {"input_ids": ids, "attention_mask": torch.ones_like(ids)},
        {"input_ids": _TOKENS, "attention_mask": _TOKENS},
        sizes=_SIZES,
    )


def _bert(small: bool) -> Network:
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=2 if small else 12)
    return _tokens(BertModel(config, add_pooling_layer=False), config.vocab_size)


def _gpt2_model(small: bool, attention: str) -> tuple[nn.Module, Any]:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes: dict[str, Any] = {"use_cache": False, "attn_implementation": attention}
    if small:
        sizes |= {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 1000}
        sizes |= {"bos_token_id": 999, "eos_token_id": 999}
    config = GPT2Config(**sizes)
    return GPT2LMHeadModel(config), config


def _gpt2(small: bool, attention: str = "sdpa") -> Network:
    model, config = _gpt2_model(small, attention)
    return _tokens(model, config.vocab_size)


def _gpt2_past(small: bool) -> Network:
    model, config = _gpt2_model(small, "sdpa")
    _spread(model)
    heads, size, past, length = config.n_head, config.n_embd // config.n_head, 5, 6
    inputs = {
        "input_ids": torch.randint(0, config.vocab_size, (2, length)),
        "attention_mask": torch.ones(2, past + length, dtype=torch.int64),
    }
    free: dict[str, Free] = {"input_ids": _TOKENS, "attention_mask": {0: "batch", 1: "total"}}
    kept = [f"{kind}_{layer}" for layer in range(config.n_layer) for kind in ("key", "value")]
    inputs |= {f"past_{name}": torch.randn(2, heads, past, size) for name in kept}
    free |= {f"past_{name}": {0: "batch", 2: "past"} for name in kept}
    return Network(
        _WithPast(model),
        inputs,
        free,
        ("y", *(f"present_{name}" for name in kept)),
        (
            {"batch": 2, "length": 1, "past": 63, "total": 64},
            {"batch": 3, "length": 32, "past": 64, "total": 96},
        ),
    )


def _vit(small: bool, fused: bool = True) -> Network:
    import timm
    from timm.layers import set_fused_attn, use_fused_attn

    was = use_fused_attn()
    set_fused_attn(fused)
    try:
        name = "vit_tiny_patch16_224" if small else "vit_base_patch16_224"
        model = timm.create_model(name, **({"depth": 2} if small else {}))
    finally:
        set_fused_attn(bool(was))
    return Network(_spread(model), {"x": torch.randn(4, 3, 224, 224)}, {"x": {0: "batch"}})


NETWORKS: Mapping[str, Callable[[bool], Network]] = {
    "resnet50": _resnet50,
    "bert": _bert,
    "gpt2": _gpt2,
    "gpt2-eager": lambda small: _gpt2(small, "eager"),
    "gpt2-past": _gpt2_past,
    "vit": _vit,
    "vit-eager": lambda small: _vit(small, fused=False),
}
"""By name: makes the network, small or as published."""

NEEDED = {"resnet50": "torchvision", "vit": "timm", "vit-eager": "timm"}
"""Packages that networks are from; all others are from transformers."""
