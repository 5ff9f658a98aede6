"""What a transformers model needs to return a loss, by the head that it has.

Labels carry no values, only their bound: a loss does not change size with them.
"""

from __future__ import annotations

import torch

from graphmem.errors import InputError
from graphmem.sources.huggingface_inputs import CHOICES, Wanted, image_size
from graphmem.sources.inputs import InputSpec

_ONE_EACH = (
    "ForSequenceClassification",
    "ForImageClassification",
    "ForAudioClassification",
    "ForVideoClassification",
    "ForXVector",
)
_LANGUAGE = ("LM", "LMHead", "LMHeadModel", "ForConditionalGeneration", "ForPreTraining")


def labels(wanted: Wanted) -> dict[str, InputSpec]:
    """The arguments with which forward returns a loss; none for a model without a head.

    Raises:
        InputError: the head's labels can't be made from the configuration.
    """
    batch, names = wanted.batch, wanted.parameters
    made: dict[str, InputSpec] = {}
    if {"start_positions", "end_positions"} <= names:  # where the answer lies in the text
        answer = InputSpec((batch,), torch.int64, high=wanted.seq())
        made |= {"start_positions": answer, "end_positions": answer}
    if "next_sentence_label" in names:
        made["next_sentence_label"] = InputSpec((batch,), torch.int64, high=2)
    if "labels" in names and "labels" not in wanted.given:
        made["labels"] = _labels(wanted)
    return made


def _labels(wanted: Wanted) -> InputSpec:
    name, batch = type(wanted.model).__name__, wanted.batch
    classes = getattr(wanted.config, "num_labels", None)
    if name.endswith("ForTokenClassification"):
        return InputSpec((batch, wanted.seq()), torch.int64, high=classes)  # [B, S]
    if name.endswith("ForMultipleChoice"):
        return InputSpec((batch,), torch.int64, high=CHOICES)
    if name.endswith("ForNextSentencePrediction"):
        return InputSpec((batch,), torch.int64, high=2)
    if name.endswith("ForSemanticSegmentation"):
        return InputSpec((batch, *image_size(wanted)), torch.int64, high=classes)  # [B, H, W]
    if name.endswith(_ONE_EACH):
        return _one_each(wanted, classes)
    if name.endswith(_LANGUAGE) and "input_ids" in wanted.parameters | {_main_text(wanted)}:
        return InputSpec((batch, wanted.seq()), torch.int64, high=wanted.vocabulary)  # [B, S]
    raise InputError(
        f"{wanted.text}: the labels of {name} can't be made from its configuration; give them "
        "with --input labels=SHAPE:DTYPE=VALUE, or in a factory that returns (model, inputs)"
    )


def _one_each(wanted: Wanted, classes: int | None) -> InputSpec:
    """A class for each sample [B], or floats where the head is a regression or multi-label."""
    problem = getattr(wanted.config, "problem_type", None)
    if problem == "multi_label_classification":
        return InputSpec((wanted.batch, classes or 1), torch.float32)
    if problem == "regression" or (problem is None and classes == 1):
        return InputSpec((wanted.batch,), torch.float32)
    return InputSpec((wanted.batch,), torch.int64, high=classes)


def _main_text(wanted: Wanted) -> str:
    """The name of the ids: the decoder's, where the encoder hears or sees."""
    return "input_ids" if "decoder_input_ids" in wanted.parameters else ""
