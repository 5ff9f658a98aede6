"""``torchvision:NAME``: a model of torchvision, built without weights.

The size of its images is what the weights that torchvision registers for it were trained
with (their preprocessing is read, nothing is downloaded), unless the model fixes it.

Source of the rest: torchvision's documentation of each family's inputs.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from graphmem.errors import ModelLoadError
from graphmem.options import nearest
from graphmem.sources.building import Built, Recipe
from graphmem.sources.inputs import InputRequest, InputSpec, ModelInputs
from graphmem.sources.packages import needed
from graphmem.sources.timm_models import in_dtype, no_text_options

FRAMES = 16
"""Frames of a video clip: what torchvision's video models were trained with."""

OBJECTS = 7
"""Objects in an image: the mean of COCO, 860,001 in 117,266 annotated training images."""

FLOW_SIZE = (520, 960)
"""The size that torchvision's optical-flow models are documented with."""


def recipe(name: str, asked: InputRequest) -> Recipe:
    """How to build the torchvision model ``name``, with the inputs of its family.

    Raises:
        ModelLoadError: torchvision is not installed, or has no such model.
        InputError: ``asked`` has an option that an image model has no use for.
    """
    text = f"torchvision:{name}"
    no_text_options(text, asked)
    models = needed("torchvision.models", "vision", text)
    if name not in models.list_models():
        close = nearest(name, models.list_models())
        hint = close or "; torchvision.models.list_models() lists them"
        raise ModelLoadError(f"{text}: torchvision has no such model{hint}")
    return Recipe("torchvision", text, lambda: _build(models, name, asked))


def _build(models: Any, name: str, asked: InputRequest) -> Built:
    builder = models.get_model_builder(name)
    options = inspect.signature(builder).parameters
    unweighted = {k: None for k in ("weights", "weights_backbone") if k in options}
    model = in_dtype(builder(**unweighted), asked.dtype)
    family = builder.__module__.split(".")[2]
    return model, _inputs(family, model, _preprocessing(models, name), asked)


def _preprocessing(models: Any, name: str) -> dict[str, Any]:
    """The arguments of the first registered weights' preprocessing, such as crop_size."""
    first = next(iter(models.get_model_weights(name)), None)
    return dict(getattr(getattr(first, "transforms", None), "keywords", {}))


def _inputs(
    family: str, model: nn.Module, trained: dict[str, Any], asked: InputRequest
) -> ModelInputs:
    batch, dtype = asked.batch or 1, asked.dtype or torch.float32
    if family == "detection":
        return _detection(model, batch, dtype, asked.labels)
    if family == "optical_flow":
        image = InputSpec((batch, 3, *FLOW_SIZE), dtype)
        return ModelInputs((image, image))
    height, width = _image_size(model, trained)
    frames = (FRAMES,) if family == "video" else ()
    return ModelInputs((InputSpec((batch, 3, *frames, height, width), dtype),))


def _image_size(model: nn.Module, trained: dict[str, Any]) -> tuple[int, int]:
    fixed = getattr(model, "image_size", None)  # vision transformers take one size only
    size = fixed if isinstance(fixed, int) else None
    size = size or trained.get("crop_size") or trained.get("resize_size") or 224
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return int(sizes[0]), int(sizes[-1])


def _detection(model: nn.Module, batch: int, dtype: torch.dtype, labels: bool) -> ModelInputs:
    """A list of images [3, H, W], of the size that the model scales them to, and targets."""
    transform: Any = model.transform
    height, width = getattr(transform, "fixed_size", None) or 2 * (transform.min_size[-1],)
    images = [InputSpec((3, height, width), dtype) for _ in range(batch)]
    targets = [_target(model, height, width) for _ in range(batch)]
    return ModelInputs((images, targets) if labels else (images,))


def _target(model: nn.Module, height: int, width: int) -> dict[str, Tensor]:
    """What an image shows: boxes [n, 4], labels [n], masks [n, H, W], keypoints [n, k, 3]."""
    with torch.device("cpu"):
        step = torch.arange(OBJECTS) + 1.0
        corner = torch.stack((step * width, step * height), dim=1) / (4 * OBJECTS)
        target = {
            "boxes": torch.cat((corner, corner + corner.new_tensor((width, height)) / 2), dim=1),
            "labels": torch.ones(OBJECTS, dtype=torch.int64),
        }
        heads: Any = getattr(model, "roi_heads", None)
        if heads is not None and heads.has_mask():
            target["masks"] = torch.ones(OBJECTS, height, width, dtype=torch.uint8)
        if heads is not None and heads.has_keypoint():
            points = heads.keypoint_predictor.kps_score_lowres.out_channels
            centre = corner + corner.new_tensor((width, height)) / 4
            shown = torch.ones(OBJECTS, points, 1)
            target["keypoints"] = torch.cat((centre[:, None].expand(-1, points, -1), shown), dim=2)
    return target
