"""The inputs of a transformers model, made from its configuration.

1. The batch is that of an ``--input``, else ``--batch``, else 1. The sequence length is
   ``--seq``, else that of the ids in ``--input``; a model of text has to be given one.
2. The main input is what the model's class says it is: ids, pixels, a waveform or a
   spectrogram. Masks are all ones: nothing is padded.
3. What decides a size and stands in no configuration is asked for by name.

Names in comments: B batch, S sequence.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from graphmem.errors import InputError
from graphmem.options import nearest
from graphmem.sources.inputs import InputRequest, InputSpec
from graphmem.sources.overrides import given_specs

_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "max_target_positions")
CHOICES = 4
"""Of a multiple-choice question: as in SWAG, which these heads were made for."""


@dataclass(frozen=True)
class Wanted:
    """A model whose inputs are to be made, and what is known of them."""

    text: str
    model: Any
    asked: InputRequest
    given: dict[str, InputSpec]
    parameters: frozenset[str]

    @property
    def config(self) -> Any:
        """The model's configuration."""
        return self.model.config

    @property
    def dtype(self) -> torch.dtype:
        """Of images and sounds: that of the model's parameters."""
        found: torch.dtype = self.model.dtype
        return found

    @property
    def batch(self) -> int:
        """B: of an input that was given, else of ``--batch``, else 1.

        Where both were given, ``overrides`` replaces the one by the other in all inputs.
        """
        sizes = [spec.shape[0] for spec in self.given.values() if spec.shape]
        return sizes[0] if sizes else self.asked.batch or 1

    @property
    def vocabulary(self) -> int | None:
        """How many ids there are, if the configuration says it."""
        size = getattr(_of_text(self.config), "vocab_size", None)
        return size if isinstance(size, int) else None

    def seq(self, what: str = "the sequence length") -> int:
        """S: of ``--seq``, else of the ids that were given.

        Raises:
            InputError: neither is there, or it is longer than the learned positions.
        """
        names = ("input_ids", "decoder_input_ids", "labels", "attention_mask", "inputs_embeds")
        sizes = [self.given[n].shape[1] for n in names if n in self.given and _rank(self, n) > 1]
        length = self.asked.seq or (sizes[0] if sizes else None)
        limit = positions(self.config)
        if length is None:
            upto = f" (the model takes up to {limit})" if limit else ""
            raise InputError(f"{self.text}: give {what} with --seq N{upto}")
        if limit and length > limit and _learned(self.model, limit):
            raise InputError(f"{self.text}: --seq {length}: the model takes up to {limit}")
        return length


def wanted_of(text: str, model: nn.Module, asked: InputRequest) -> Wanted:
    """What is known of the inputs of a model. ``text`` is the subject's, for the messages.

    Raises:
        InputError: ``--input`` names an argument that forward doesn't have.
    """
    names = list(inspect.signature(model.forward).parameters)
    by_position = iter(names)
    given = {spec.name or next(by_position, "one more"): spec for spec in given_specs(asked)}
    for name in given:
        if name not in names:  # forward takes any keyword, and would ignore this one
            raise InputError(f"{text}: forward has no argument {name!r}{nearest(name, names)}")
    return Wanted(text, model, asked, given, frozenset(names))


def main_inputs(wanted: Wanted) -> dict[str, InputSpec]:
    """The keyword arguments of a forward pass.

    Raises:
        InputError: a size is not given and stands in no configuration.
    """
    name = wanted.model.main_input_name
    makers = {
        "input_ids": _text,
        "pixel_values": _pixels,
        "input_values": _waveform,
        "input_features": _spectrogram,
    }
    if name not in makers:
        if name not in wanted.given:
            raise InputError(f"{wanted.text}: give the shape with --input {name}=SHAPE")
        return {}
    images = _pixels(wanted) if _needs_images(wanted) else {}
    return makers[name](wanted) | images | _decoder(wanted)


def positions(config: Any) -> int | None:
    """The longest sequence that a configuration provides for."""
    text_config = _of_text(config)
    sizes = (getattr(text_config, name, None) for name in _POSITIONS)
    return next((size for size in sizes if isinstance(size, int) and size > 0), None)


def _of_text(config: Any) -> Any:
    """The configuration of the text that is given: of a model with two texts, the encoder's."""
    encoder = getattr(config, "text_encoder", None)
    return config.get_text_config() if encoder is None else encoder


def image_size(wanted: Wanted) -> tuple[int, int]:
    """Height and width of the model's images.

    Raises:
        InputError: the configuration does not say.
    """
    if "pixel_values" in wanted.given and _rank(wanted, "pixel_values") > 2:
        height, width = wanted.given["pixel_values"].shape[-2:]
        return height, width
    size = getattr(_vision(wanted.config), "image_size", None)
    if size is None:
        raise InputError(
            f"{wanted.text}: the configuration says no image size; "
            "give it with --input pixel_values=8x3x224x224"
        )
    sizes = (size,) if isinstance(size, int) else tuple(size)
    return int(sizes[0]), int(sizes[-1])


def _text(wanted: Wanted) -> dict[str, InputSpec]:
    shape: tuple[int, ...] = (wanted.batch, wanted.seq())  # [B, S]
    if type(wanted.model).__name__.endswith("MultipleChoice"):
        shape = (wanted.batch, CHOICES, wanted.seq())
    made = {"input_ids": InputSpec(shape, torch.int64, high=wanted.vocabulary)}
    if "attention_mask" in wanted.parameters:
        made["attention_mask"] = InputSpec(shape, torch.int64, "ones")
    return made


def _pixels(wanted: Wanted) -> dict[str, InputSpec]:
    if "pixel_values" in wanted.given:
        return {}
    vision = _vision(wanted.config)
    frames = getattr(vision, "num_frames", None)
    channels = getattr(vision, "num_channels", 3)
    clip = (frames,) if isinstance(frames, int) else ()
    shape = (wanted.batch, *clip, channels, *image_size(wanted))  # [B, (frames), C, H, W]
    return {"pixel_values": InputSpec(shape, wanted.dtype)}


def _waveform(wanted: Wanted) -> dict[str, InputSpec]:
    """Samples [B, S], or a spectrogram [B, frames, bins] where the model fixes it."""
    if "input_values" in wanted.given:
        return {}
    config = wanted.config
    bins = getattr(config, "num_mel_bins", None)
    if bins and getattr(config, "max_length", None):
        shape: tuple[int, ...] = (wanted.batch, config.max_length, bins)
    else:
        shape = (wanted.batch, wanted.seq("the number of samples"))
    return {"input_values": InputSpec(shape, wanted.dtype)}


def _spectrogram(wanted: Wanted) -> dict[str, InputSpec]:
    """Mel features: [B, bins, frames] of Whisper, whose encoder halves the frames, else given."""
    if "input_features" in wanted.given:
        return {}
    config = wanted.config
    bins, frames = (getattr(config, n, None) for n in ("num_mel_bins", "max_source_positions"))
    if not bins or not frames:
        raise InputError(f"{wanted.text}: give the shape with --input input_features=SHAPE")
    return {"input_features": InputSpec((wanted.batch, bins, 2 * frames), wanted.dtype)}


def _decoder(wanted: Wanted) -> dict[str, InputSpec]:
    """The decoder's ids [B, S]; with labels, the model shifts those to the right itself."""
    name = "decoder_input_ids"
    if name not in wanted.parameters or not getattr(wanted.config, "is_encoder_decoder", False):
        return {}
    if wanted.asked.labels and "labels" in wanted.parameters:
        return {}
    shape = (wanted.batch, wanted.seq())
    return {name: InputSpec(shape, torch.int64, high=wanted.vocabulary)}


def _needs_images(wanted: Wanted) -> bool:
    """Whether a model of text can't do without images: CLIP's kind, and where no default is."""
    if wanted.model.main_input_name == "pixel_values" or "pixel_values" not in wanted.parameters:
        return False
    parameter = inspect.signature(wanted.model.forward).parameters["pixel_values"]
    return parameter.default is parameter.empty or hasattr(wanted.model, "logit_scale")


def _vision(config: Any) -> Any:
    return getattr(config, "vision_config", None) or config


def _rank(wanted: Wanted, name: str) -> int:
    return len(wanted.given[name].shape)


def _learned(model: nn.Module, limit: int) -> bool:
    """Whether positions are looked up in a table, which ends at ``limit``."""
    tables = (
        module.num_embeddings
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding) and ("position" in name or name.endswith("wpe"))
    )
    return any(limit <= size <= limit + 2 for size in tables)  # some keep two rows for padding
