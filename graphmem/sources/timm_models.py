"""``timm:NAME``: an image model of timm, built without pretrained weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from graphmem.errors import InputError, ModelLoadError
from graphmem.options import nearest
from graphmem.sources.building import Built, Recipe
from graphmem.sources.inputs import InputRequest, InputSpec, ModelInputs
from graphmem.sources.packages import needed


def recipe(name: str, asked: InputRequest) -> Recipe:
    """How to build the timm model ``name``, with one image input [N, C, H, W].

    Raises:
        ModelLoadError: timm is not installed, or has no such model.
        InputError: ``asked`` has an option that an image model has no use for.
    """
    text = f"timm:{name}"
    no_text_options(text, asked)
    timm = needed("timm", "timm", text)
    if not timm.is_model(name):
        close = nearest(name, timm.list_models()) or "; timm.list_models() lists them"
        raise ModelLoadError(f"{text}: timm {timm.__version__} has no such model{close}")
    return Recipe("timm", text, lambda: _build(timm, name, asked))


def no_text_options(subject: str, asked: InputRequest) -> None:
    """Refuse ``--seq`` and ``--task`` for a subject that has no use for them.

    Raises:
        InputError: naming the option.
    """
    for option, value in (("--seq", asked.seq), ("--task", asked.task)):
        if value is not None:
            raise InputError(f"{subject}: {option} {value} is for hf: models; leave it out")


def in_dtype(model: nn.Module, dtype: torch.dtype | None) -> nn.Module:
    """The model, with its floating-point parameters and buffers in ``dtype``."""
    return model if dtype is None else model.to(dtype)


def _build(timm: Any, name: str, asked: InputRequest) -> Built:
    model = in_dtype(timm.create_model(name, pretrained=False), asked.dtype)
    shape = (asked.batch or 1, *_input_size(model))
    return model, ModelInputs((InputSpec(shape, asked.dtype or torch.float32),))


def _input_size(model: nn.Module) -> tuple[int, ...]:
    """The size [C, H, W] of the images that the model is made for."""
    config: Any = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", {})
    return tuple(config.get("input_size") or (3, 224, 224))
