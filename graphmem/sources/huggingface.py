"""``hf:CONFIG.json`` and ``hf:DIR``: a model of transformers, built from its configuration.

The class is picked by ``--task``, else by the configuration's ``architectures``, else by
what the type of model is made for. Weights are random and nothing is downloaded.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphmem.errors import InputError, ModelLoadError
from graphmem.options import nearest
from graphmem.sources.building import Built, Recipe
from graphmem.sources.huggingface_inputs import main_inputs, wanted_of
from graphmem.sources.huggingface_labels import labels
from graphmem.sources.inputs import InputRequest, ModelInputs
from graphmem.sources.packages import needed

_TASKS = {
    "base": "AutoModel",
    "feature-extraction": "AutoModel",
    "pretraining": "AutoModelForPreTraining",
    "causal-lm": "AutoModelForCausalLM",
    "text-generation": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "fill-mask": "AutoModelForMaskedLM",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
    "text2text-generation": "AutoModelForSeq2SeqLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "multiple-choice": "AutoModelForMultipleChoice",
    "image-classification": "AutoModelForImageClassification",
    "semantic-segmentation": "AutoModelForSemanticSegmentation",
    "video-classification": "AutoModelForVideoClassification",
    "image-text-to-text": "AutoModelForImageTextToText",
    "audio-classification": "AutoModelForAudioClassification",
    "automatic-speech-recognition": "AutoModelForSpeechSeq2Seq",
    "ctc": "AutoModelForCTC",
}

_FALLBACK = (
    "AutoModelForSeq2SeqLM",
    "AutoModelForMaskedLM",
    "AutoModelForCausalLM",
    "AutoModelForImageClassification",
    "AutoModelForVideoClassification",
    "AutoModelForSpeechSeq2Seq",
    "AutoModelForAudioClassification",
)
"""What a model without ``architectures`` is made for: the first of these that knows it.

Masked before causal, because encoders such as BERT have a causal head as well.
"""


def recipe(path: str, asked: InputRequest) -> Recipe:
    """How to build the model that the configuration at ``path`` describes.

    Raises:
        ModelLoadError: transformers is not installed, or the configuration can't be read
            or names no model that transformers knows.
        InputError: the task is unknown.
    """
    text = f"hf:{path}"
    values = _read(text, Path(path))
    transformers = needed("transformers", "hf", text)
    config = _config(text, transformers, values)
    cls = _model_class(text, transformers, config, asked.task)
    return Recipe("hf", text, lambda: _build(text, cls, config, asked))


def _build(text: str, cls: Any, config: Any, asked: InputRequest) -> Built:
    options = {} if asked.dtype is None else {"dtype": asked.dtype}
    config.architectures = config.architectures or []  # Auto classes of several models read it
    build = getattr(cls, "from_config", None) or cls._from_config  # an Auto class, or a model's
    with _offline():
        model: Any = build(config, **options)
    model.tie_weights()
    wanted = wanted_of(text, model, asked)
    made = main_inputs(wanted) | (labels(wanted) if asked.labels else {})
    return model, ModelInputs(kwargs={k: v for k, v in made.items() if k not in wanted.given})


def _read(text: str, path: Path) -> dict[str, Any]:
    """The configuration's JSON object, of a file or of the folder that holds it."""
    file = path / "config.json" if path.is_dir() else path
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        what = "no config.json in this folder" if path.is_dir() else "no such file or folder"
        hint = "" if path.is_dir() else "; download the model's config.json first"
        raise ModelLoadError(f"{text}: {what}{hint}") from error
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{text}: {file.name} is no JSON file: {error}") from error
    if not isinstance(values, dict) or not isinstance(values.get("model_type"), str):
        raise ModelLoadError(f"{text}: {file.name} has no model_type; is it a model's config.json?")
    return values


def _config(text: str, transformers: Any, values: dict[str, Any]) -> Any:
    known = transformers.CONFIG_MAPPING
    model_type = values["model_type"]
    if model_type not in known:
        own = "; it runs code of its own (auto_map): import it in a factory instead"
        hint = own if "auto_map" in values else nearest(model_type, known.keys())
        version = transformers.__version__
        raise ModelLoadError(f"{text}: transformers {version} has no model {model_type!r}{hint}")
    try:
        return known[model_type].from_dict(values)
    except Exception as error:  # validation errors have no common base
        why = " ".join(str(error).split())
        raise ModelLoadError(f"{text}: transformers refuses this {model_type}: {why}") from error


def _model_class(text: str, transformers: Any, config: Any, task: str | None) -> Any:
    if task is not None:
        return _class_of_task(text, transformers, config, task)
    for name in config.architectures or ():
        if hasattr(transformers, name):
            return getattr(transformers, name)
    for name in _FALLBACK:
        auto = getattr(transformers, name, None)
        if auto is not None and type(config) in auto._model_mapping:
            return auto
    return transformers.AutoModel


def _class_of_task(text: str, transformers: Any, config: Any, task: str) -> Any:
    if task not in _TASKS:
        raise InputError(
            f"{text}: --task {task!r} is not one of {', '.join(_TASKS)}{nearest(task, _TASKS)}"
        )
    auto = getattr(transformers, _TASKS[task])
    if type(config) not in auto._model_mapping:
        raise ModelLoadError(f"{text}: transformers has no {config.model_type} model for {task}")
    return auto


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """Keep transformers from downloading anything, for the time of the block."""
    constants: Any = needed("huggingface_hub.constants", "hf", "hf:")
    before, constants.HF_HUB_OFFLINE = constants.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
