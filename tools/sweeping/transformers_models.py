"""transformers: every type of model that an Auto class can build, shrunk, and run for real first.

A type is built by the first of ``AUTO`` that knows it. Of the configurations and the inputs the
first that run one forward for real are taken; a type for which none does is not runnable, and
counts as such with the first reason.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from graphmem.errors import one_line
from graphmem.options import Mode
from graphmem.sources import InputRequest, LoadedSubject
from graphmem.sources.building import Built, Recipe
from graphmem.sources.huggingface_inputs import wanted_of
from graphmem.sources.huggingface_labels import labels
from graphmem.sources.inputs import ModelInputs
from graphmem.sources.subject import loaded
from tools.sweeping.case import BATCH, run_really, said
from tools.sweeping.configurations import configurations
from tools.sweeping.transformers_inputs import SEQUENCE, all_inputs, with_tokens

AUTO = (
    *("ForSeq2SeqLM", "ForMaskedLM", "ForImageTextToText", "ForCausalLM", "ForSpeechSeq2Seq"),
    *("ForCTC", "ForRNNT", "ForTDT", "ForObjectDetection", "ForZeroShotObjectDetection"),
    *("ForUniversalSegmentation", "ForSemanticSegmentation", "ForImageSegmentation"),
    *("ForInstanceSegmentation", "ForDepthEstimation", "ForNormalEstimation"),
    *("ForImageClassification", "ForVideoClassification", "ForAudioClassification"),
    *("ForTextToSpectrogram", "ForTextToWaveform", "ForTimeSeriesPrediction"),
    *("ForVisualQuestionAnswering", "ForKeypointDetection", "ForKeypointMatching"),
    *("ForImageMatting", "ForImageToImage", "ForPoseEstimation", "ForPointmapEstimation"),
    *("ForTextRecognition", "ForTableRecognition", "ForMaskGeneration", "ForMaskedImageModeling"),
    *(
        "ForMultimodalLM",
        "ForDecision",
        "ForAudioTokenization",
        "",
        "ForPreTraining",
        "ForQuestionAnswering",
    ),
    *("ForSequenceClassification", "ForTokenClassification"),
    *("ForZeroShotImageClassification", "ForTextEncoding"),
)
"""The Auto classes, ``AutoModel`` and a suffix, with what a type is made for first."""

MOST_PARAMETERS = {Mode.INFERENCE: 600_000_000, Mode.TRAINING: 200_000_000}
"""What can be run for real with 4 GB: 4 B each, and 16 B each with gradients and AdamW's states."""


_ASSUMED: dict[str, Mapping[Mode, Mapping[str, int]]] = {
    "vits": {mode: {"modeling_vits.py:1351": 64} for mode in Mode},
}
"""What is said of lines that ask for a size that only values decide.

VITS draws how long the speech is: of 16 ids, random weights made 26 to 74 frames in four runs.
"""

MOST_SECONDS = 40
"""Of a processor, to find a class, a configuration and inputs that run."""


def names() -> list[str]:
    """Every type of model that one of the Auto classes can build."""
    from transformers.models.auto import modeling_auto

    mappings = (getattr(modeling_auto, f"AutoModel{suffix}")._model_mapping for suffix in AUTO)
    return sorted({name for mapping in mappings for name in mapping._model_mapping})


class TransformersCase:
    """One type of model."""

    def __init__(self, model_type: str) -> None:
        from transformers.models.auto import configuration_auto

        self.model_type = model_type
        self.how = ""
        self.assume = _ASSUMED.get(model_type, {})
        self._config_class = configuration_auto.CONFIG_MAPPING[model_type]
        self._class: Any = None
        self._config: Any = None
        self._kwargs: dict[str, Any] = {}
        self._labelled = False
        self._parameters = 0
        self._searched = False
        self._reason: str | None = None

    def refused(self, mode: Mode) -> str | None:
        """Why nothing runs for real; what does is what is analyzed."""
        if not self._searched:
            self._searched = True
            self._reason = self._choose()
        if mode is Mode.INFERENCE or self._reason is not None:
            return self._reason
        if self._parameters > MOST_PARAMETERS[mode]:
            return f"{self._parameters:,} parameters are too many to train here"
        reason = None
        for labelled in (True, False):
            self._labelled = labelled
            reason = self._fails(mode)
            if reason is None:
                return None
        return reason

    def subject(self, mode: Mode) -> LoadedSubject:
        """As a factory of the command line's is loaded."""
        return self._loaded(mode, really=False)

    def _choose(self) -> str | None:
        """Find a class, a configuration and inputs that run: None; or the first reason."""
        reasons: list[str] = []
        tried: dict[Any, list[str]] = {}
        began = time.process_time()
        for model_class, (how, config) in self._ways():
            before = tried.setdefault(model_class, [])
            if len(before) > 1 and len(set(before)) == 1:  # no reason that a size would remove
                continue
            if time.process_time() - began > MOST_SECONDS:
                reasons.insert(0, f"nothing ran in {MOST_SECONDS} s of trials")
                break
            self._class, self._config = model_class, config
            self.how = ", ".join(filter(None, (model_class.__name__, how, said(self.assume))))
            reason = self._try_inputs()
            if reason is None:
                return None
            before.append(reason)
            reasons.append(f"{self.how}: {reason}")
        self._config = None
        return "; ".join(reasons[:3])

    def _ways(self) -> Iterator[tuple[Any, tuple[str, Any]]]:
        return itertools.product(
            _classes(self._config_class), list(configurations(self._config_class))
        )

    def _try_inputs(self) -> str | None:
        try:
            model = self._on_meta()
        except Exception as error:
            return f"{type(error).__name__}: {one_line(error)}"
        reasons = []
        for kwargs in all_inputs(self.model_type, model):
            self._kwargs = kwargs
            reason = self._fails(Mode.INFERENCE)
            if reason is None:
                return None
            reasons.append(reason)
        return reasons[0]

    def _fails(self, mode: Mode) -> str | None:
        for _ in range(2):  # once more if the error says how many image tokens are missing
            try:
                run_really(self._loaded(mode, really=True), mode)
            except Exception as error:
                reason = f"{type(error).__name__}: {one_line(error)}"
                more = with_tokens(self._kwargs, error, self._config)
                if more is None:
                    return reason
                self._kwargs = more
            else:
                return None
        return reason

    def _on_meta(self) -> nn.Module:
        with torch.device("meta"):
            model = self._model()
        self._parameters = sum(p.numel() for p in model.parameters())
        if self._parameters > MOST_PARAMETERS[Mode.INFERENCE]:
            raise MemoryError(f"{self._parameters:,} parameters are too many to run here")
        return model

    def _model(self) -> nn.Module:
        model: nn.Module = self._class._from_config(copy.deepcopy(self._config))
        return model

    def _loaded(self, mode: Mode, *, really: bool) -> LoadedSubject:
        recipe = Recipe("factory", self.model_type, lambda: self._build(mode))
        return loaded(self.model_type, recipe, InputRequest(), really=really)

    def _build(self, mode: Mode) -> Built:
        model = self._model()
        kwargs = dict(self._kwargs)
        if mode is Mode.TRAINING and self._labelled:
            asked = InputRequest(batch=BATCH, seq=SEQUENCE, labels=True)
            kwargs |= labels(wanted_of(self.model_type, model, asked))
        return model, ModelInputs(kwargs=kwargs)


def _classes(config_class: Any) -> list[Any]:
    """The classes that Auto classes build of a configuration, in the order of ``AUTO``."""
    from transformers.models.auto import modeling_auto

    found: list[Any] = []
    for suffix in AUTO:
        mapping = getattr(modeling_auto, f"AutoModel{suffix}")._model_mapping
        if config_class in mapping:
            of_task = mapping[config_class]
            found += of_task if isinstance(of_task, list | tuple) else [of_task]
    return list(dict.fromkeys(found))
