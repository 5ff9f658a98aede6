"""Shrunk configurations of transformers: small enough to run for real, of the same structure.

From the smallest to the largest that are tried:

1. ``small``: the class's own defaults with two layers (more where layers have kinds), two heads
   of the size that they have, and four experts; in each nested configuration as well;
2. ``few layers``: the same as wide as the defaults are;
3. ``default``: as they are.

Names that a class does not have are left out. Vocabularies stay: special tokens lie in them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

_DEPTH = (
    *("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"),
    *("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers"),
    *("encoder_num_hidden_layers", "decoder_num_hidden_layers", "text_encoder_num_layers"),
)
_EXPERTS = {
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "num_experts_per_token"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts"), 1),
}
_WIDTH = dict.fromkeys(
    (
        *("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "d_ff"),
        *("n_inner", "moe_intermediate_size", "shared_expert_intermediate_size"),
    ),
    128,
)
_HEADS = ("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads")
_MORE_HEADS = ("decoder_attention_heads", "num_key_value_heads", "num_global_key_value_heads")
_HIDDEN = ("hidden_size", "d_model", "n_embd", "embed_dim")
_TYPES = ("layer_types", "layers_block_type", "mlp_layer_types", "block_types")
"""Lists with the kind of each layer: the first layers that have every kind are kept."""

_MOST_LAYERS = 8

_SERIES = {"prediction_length": 8, "context_length": 16, "num_time_features": 1}
OWN: dict[str, dict[str, Any]] = {
    "time_series_transformer": _SERIES,
    "informer": _SERIES,
    "autoformer": _SERIES,
    "bamba": {"attn_layer_indices": [1]},
}
"""What a type's own default leaves open, or can't be run with."""


def configurations(cls: Any) -> Iterator[tuple[str, Any]]:
    """Each way's name with its configuration, the smallest first.

    Args:
        cls: the configuration's class.

    Raises:
        Exception: whatever the class raises for its own defaults.
    """
    own = OWN.get(cls.model_type, {})
    default = cls(**own)
    for name, narrow in (("small", True), ("few layers", False)):
        try:
            yield name, cls(**{**_smaller(default, narrow), **own})
        except Exception:  # sizes that do not go together: the next ones may
            continue
    yield "default", default


def _smaller(default: Any, narrow: bool) -> dict[str, Any]:
    """The arguments of a configuration's class that make it small."""
    named = frozenset(inspect.signature(type(default).__init__).parameters)
    depth = _depth(default)
    sizes = {**dict.fromkeys(_DEPTH, depth), **_EXPERTS, **(_WIDTH if narrow else {})}
    made: dict[str, Any] = {
        name: min(size, getattr(default, name))
        for name, size in sizes.items()
        if name in named and type(getattr(default, name, None)) is int
    }
    if narrow:
        made |= _narrow(default, named)
    for name in _TYPES:
        kinds = getattr(default, name, None)
        if name in named and isinstance(kinds, list | tuple):
            made[name] = list(kinds[:depth])
    for name in getattr(type(default), "sub_configs", {}):
        sub = getattr(default, name, None)
        if sub is not None and not isinstance(sub, dict):
            made[name] = {**_itself(sub), **_smaller(sub, narrow)}
    return made


def _narrow(default: Any, named: frozenset[str]) -> dict[str, Any]:
    """Two heads of the size that the default has: rotary embeddings are made for it."""
    hidden = next((n for n in _HIDDEN if n in named and _is_size(default, n)), None)
    heads = next((n for n in _HEADS if n in named and _is_size(default, n)), None)
    if hidden is None or heads is None:
        return {}
    grouped = not hasattr(default, "kv_lora_rank")
    made = {heads: 2, hidden: 2 * max(getattr(default, hidden) // getattr(default, heads), 8)}
    for name in _MORE_HEADS:
        if name in named and _is_size(default, name):
            made[name] = 1 if "key_value" in name and grouped else 2
    return made


def _is_size(config: Any, name: str) -> bool:
    return type(getattr(config, name, None)) is int


def _depth(default: Any) -> int:
    """Two layers, or as many as it takes to have one of each kind."""
    depth = 2
    for name in _TYPES:
        kinds = getattr(default, name, None)
        if isinstance(kinds, list | tuple) and kinds:
            depth = max(depth, *(list(kinds).index(kind) + 1 for kind in set(kinds)))
    return min(depth, _MOST_LAYERS)


def _itself(sub: Any) -> dict[str, Any]:
    """What a nested configuration says of itself beside its sizes."""
    return {"model_type": sub.model_type} if sub.model_type else {}
