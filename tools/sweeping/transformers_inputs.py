"""Inputs of a transformers model of any kind, made from its signature and its configuration.

Several are given, one after another, because a configuration does not say what a model takes
together: all that forward has an argument for (text with images, sounds in either layout), what
graphmem makes itself for ``hf:``, the main input, and what forward can't do without.

B is the batch, S the sequence, P the side of a patch.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from graphmem.errors import GraphmemError
from graphmem.sources import InputRequest, InputSpec
from graphmem.sources.huggingface_inputs import main_inputs, wanted_of
from tools.sweeping.case import BATCH

SEQUENCE = 16
"""No longer than the shortest that a model of text and images takes (OWL-ViT's)."""
_FRAMES = 3000
"""Of a spectrogram: 30 s, what Whisper's kind fixes."""
_SAMPLES = 16_000
"""Of a wave: 1 s."""
_GRID = 4
"""Patches along each side of an image that is given as a list of patches."""

_OPTIONAL = (
    *("hidden_states", "inputs_embeds", "query_embeds", "decoder_inputs_embeds"),
    "pixel_values_videos",
)
"""Made only where forward can't do without."""

_IMAGE_TOKENS = ("image_token_id", "image_token_index", "audio_token_id", "audio_token_index")
_MISMATCH = re.compile(r"tokens:?\s*(?:n_\w+=)?(\d+),?\s*(?:and )?(?:\w+ )?features:?\s*(\d+)")


def all_inputs(model_type: str, model: nn.Module) -> Iterator[dict[str, Any]]:
    """Keyword arguments of forward, the most complete first."""
    parameters = inspect.signature(model.forward).parameters
    required = {n for n, p in parameters.items() if p.default is p.empty}
    made = _made(model, frozenset(parameters))
    complete = {n: v for n, v in made.items() if n in parameters and n not in _OPTIONAL}
    needed = {n: made[n] for n in required if n in made}
    yield needed | complete
    yield from ({**needed, **complete, **other} for other in _other_sounds(complete))
    try:
        wanted = wanted_of(model_type, model, InputRequest(batch=BATCH, seq=SEQUENCE))
        yield needed | {n: v for n, v in main_inputs(wanted).items() if n in parameters}
    except (GraphmemError, AttributeError, TypeError):
        pass
    main = str(getattr(model, "main_input_name", "input_ids"))
    if main in made and main in parameters:
        yield needed | {main: made[main]}
    yield needed


def _other_sounds(made: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Spectrograms as [B, frames, bins] or [B, 1, frames, bins], waves as [B, 1, samples]."""
    if "input_features" in made:
        turned = (BATCH, *reversed(made["input_features"].shape[1:]))
        yield {"input_features": InputSpec(turned)}
        yield {"input_features": InputSpec((BATCH, 1, *turned[1:]))}
    if "input_values" in made:
        batch, samples = made["input_values"].shape
        yield {"input_values": InputSpec((batch, 1, samples))}


def with_tokens(inputs: dict[str, Any], error: Exception, config: Any) -> dict[str, Any] | None:
    """The inputs with as many image (or sound) tokens in the text as an error asks for.

    None if the error is about something else.
    """
    match = _MISMATCH.search(str(error))
    tokens = [t for n in _IMAGE_TOKENS if isinstance(t := getattr(config, n, None), int)]
    if match is None or not tokens or "input_ids" not in inputs:
        return None
    each = -(-int(match[2]) // BATCH)
    text = torch.ones((BATCH, each + SEQUENCE), dtype=torch.int64)
    text[:, 1 : each + 1] = tokens[0]
    made = {**inputs, "input_ids": text}
    for name in ("attention_mask", "token_type_ids", "mm_token_type_ids"):
        if name in inputs:
            made[name] = torch.ones_like(text)
    if "mm_token_type_ids" in inputs:
        made["mm_token_type_ids"] = (text == tokens[0]).to(torch.int64)
    return made


def found(config: Any, *names: str) -> Any:
    """The first value that a configuration, or one nested in it, has under one of the names."""
    for each in _nested(config):
        for name in names:
            value = getattr(each, name, None)
            if value is not None and not isinstance(value, bool):
                return value
    return None


def _nested(config: Any) -> Iterator[Any]:
    yield config
    for name in getattr(type(config), "sub_configs", {}):
        if (sub := getattr(config, name, None)) is not None and not isinstance(sub, dict):
            yield from _nested(sub)


def _made(model: nn.Module, parameters: frozenset[str]) -> dict[str, Any]:
    config: Any = model.config
    return {**_text(config), **_images(config, parameters), **_sounds(config), **_series(config)}


def _text(config: Any) -> dict[str, Any]:
    sizes = [getattr(each, "vocab_size", None) for each in _nested(config)]
    smallest = min((s for s in sizes if isinstance(s, int) and s > 0), default=100)
    ids = InputSpec((BATCH, SEQUENCE), torch.int64, high=smallest)
    ones = torch.ones((BATCH, SEQUENCE), dtype=torch.int64)
    hidden = found(config, "hidden_size", "d_model", "encoder_hidden_size") or 64
    embedded = InputSpec((BATCH, SEQUENCE, hidden))
    made: dict[str, Any] = {
        "input_ids": ids,
        "attention_mask": ones,
        "bbox": torch.zeros((BATCH, SEQUENCE, 4), dtype=torch.int64),
        **dict.fromkeys(_OPTIONAL[:4], embedded),
        "visual_feats": InputSpec((BATCH, 4, found(config, "visual_feat_dim") or 512)),
        "visual_pos": InputSpec((BATCH, 4, 4)),
    }
    if getattr(config, "is_encoder_decoder", False):
        made["decoder_input_ids"] = ids
    return made


def _images(config: Any, parameters: frozenset[str]) -> dict[str, Any]:
    channels = found(config, "num_channels", "in_channels", "in_chans") or 3
    channels = channels if isinstance(channels, int) else 3
    grids = {"image_grid_thw", "grid_thw"} & parameters
    if grids:
        return _patches(config, channels, grids)
    if "spatial_shapes" in parameters:
        return _padded_patches(config, channels)
    size = found(config, "image_size", "input_size") or 224
    sides = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    frames = found(config, "num_frames")
    clip = (frames,) if isinstance(frames, int) else ()
    return {
        "pixel_values": InputSpec((BATCH, *clip, channels, *sides)),
        "pixel_values_videos": InputSpec((BATCH, *(clip or (16,)), channels, *sides)),
        "pixel_mask": torch.ones((BATCH, *sides), dtype=torch.int64),
        "image_sizes": torch.tensor([sides] * BATCH),
    }


def _patches(config: Any, channels: int, grids: set[str]) -> dict[str, Any]:
    """Images as a list of patches [B * grid * grid, C * T * P * P], and their grid."""
    patch = found(config, "patch_size") or 14
    times = found(config, "temporal_patch_size") or 1
    count = BATCH * _GRID * _GRID
    values = InputSpec((count, channels * times * patch * patch))
    grid: Tensor = torch.tensor([[1, _GRID, _GRID]] * BATCH)
    names = ("pixel_values", "hidden_states")
    tokens = torch.zeros((BATCH, SEQUENCE), dtype=torch.int64)
    return {
        **dict.fromkeys(names, values),
        **dict.fromkeys(grids, grid),
        "mm_token_type_ids": tokens,
    }


def _padded_patches(config: Any, channels: int) -> dict[str, Any]:
    """Images as their patches [B, grid * grid, C * P * P], with how many lie along each side."""
    patch = found(config, "patch_size") or 14
    count = _GRID * _GRID
    return {
        "pixel_values": InputSpec((BATCH, count, channels * patch * patch)),
        "pixel_attention_mask": torch.ones((BATCH, count), dtype=torch.int64),
        "spatial_shapes": torch.tensor([[_GRID, _GRID]] * BATCH),
    }


def _sounds(config: Any) -> dict[str, Any]:
    bins = found(config, "num_mel_bins", "feature_size", "n_mels", "input_feat_per_channel") or 80
    if not isinstance(bins, int):
        bins = 80
    return {
        "input_values": InputSpec((BATCH, _SAMPLES)),
        "input_features": InputSpec((BATCH, bins, _FRAMES)),
        "input_features_mask": torch.ones((BATCH, _FRAMES), dtype=torch.int64),
    }


def _series(config: Any) -> dict[str, Any]:
    """Time series: the past, as long as the model and its lags look back."""
    context = getattr(config, "context_length", None)
    if not isinstance(context, int):
        return {}
    channels = getattr(config, "num_input_channels", None)
    if isinstance(channels, int):
        return {"past_values": InputSpec((BATCH, context, channels))}
    past = context + max(getattr(config, "lags_sequence", None) or [0])
    features = getattr(config, "num_time_features", 0)
    future = getattr(config, "prediction_length", None) or context
    return {
        "past_values": InputSpec((BATCH, past)),
        "past_time_features": InputSpec((BATCH, past, features)),
        "past_observed_mask": torch.ones((BATCH, past)),
        "future_values": InputSpec((BATCH, future)),
        "future_time_features": InputSpec((BATCH, future, features)),
    }
