"""``hf:CONFIG``: transformers' models from tiny configurations, and their inputs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem.errors import InputError, ModelLoadError
from graphmem.sources import InputSpec
from tests.sources.subjects import load, refused

pytest.importorskip("transformers", reason="transformers is not installed")

INT = torch.int64
TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 100,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
BERT = TINY | {"model_type": "bert"}
GPT2 = {"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 100}
GPT2 |= {"bos_token_id": 1, "eos_token_id": 2}
LLAMA = TINY | {"model_type": "llama", "num_key_value_heads": 2, "max_position_embeddings": 8192}
T5 = {"model_type": "t5", "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
T5 |= {"vocab_size": 100, "decoder_start_token_id": 0, "pad_token_id": 0}
VIT = TINY | {"model_type": "vit", "image_size": 32, "patch_size": 8}
WHISPER = {"model_type": "whisper", "d_model": 32, "encoder_layers": 1, "decoder_layers": 1}
WHISPER |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "vocab_size": 100}
WHISPER |= {"architectures": ["WhisperForConditionalGeneration"], "pad_token_id": 0}
WHISPER |= {"bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Write a configuration; returns the subject's text."""

    def _write(config: dict[str, Any], **changes: Any) -> str:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config | changes), encoding="utf-8")
        return f"hf:{path}"

    return _write


def _shapes(kwargs: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in kwargs.items()}


def test_of_several_classes_for_a_task_the_first_is_taken(write: Any) -> None:
    """transformers' own Auto class fails on a configuration that names no architecture."""
    subject = load(write(VIT, model_type="deit"), task="image-classification", batch=2)
    assert type(subject.model).__name__ == "DeiTForImageClassification"


@pytest.mark.parametrize(
    ("config", "cls", "expected"),
    [
        (GPT2, "GPT2LMHeadModel", {"input_ids": (2, 16), "labels": (2, 16)}),
        (BERT, "BertForMaskedLM", {"input_ids": (2, 16), "labels": (2, 16)}),
        (LLAMA, "LlamaForCausalLM", {"input_ids": (2, 16), "labels": (2, 16)}),
        (T5, "T5ForConditionalGeneration", {"input_ids": (2, 16), "labels": (2, 16)}),
    ],
)
def test_a_model_of_text_gets_ids_a_mask_and_labels(
    write: Any, config: dict[str, Any], cls: str, expected: dict[str, Any]
) -> None:
    subject = load(write(config), batch=2, seq=16, labels=True)
    assert subject.kind == "hf"
    assert type(subject.model).__name__ == cls
    assert not subject.real
    assert _shapes(subject.kwargs) == expected | {"attention_mask": (2, 16)}
    assert subject.kwargs["input_ids"] == InputSpec((2, 16), INT, high=100)
    assert subject.kwargs["attention_mask"].tolist() == [[1] * 16] * 2


@pytest.mark.parametrize("config", [GPT2, BERT, LLAMA, T5, VIT, WHISPER])
@pytest.mark.parametrize("labels", [False, True])
def test_the_inputs_are_what_the_model_takes(
    write: Any, config: dict[str, Any], labels: bool
) -> None:
    seq = None if config is VIT else 16
    subject = load(write(config), batch=2, seq=seq, labels=labels)
    assert subject.rebuild_really is not None
    really = subject.rebuild_really()
    kwargs = {
        name: value.example() if isinstance(value, InputSpec) else value
        for name, value in really.kwargs.items()
    }
    outputs = really.model.eval()(**kwargs)
    assert ("loss" in outputs) == labels


@pytest.mark.parametrize(
    ("task", "changes", "labels"),
    [
        ("text-classification", {}, {"labels": InputSpec((2,), INT, high=2)}),
        ("text-classification", {"num_labels": 1}, {"labels": InputSpec((2,))}),
        (
            "text-classification",
            {"num_labels": 5, "problem_type": "multi_label_classification"},
            {"labels": InputSpec((2, 5))},
        ),
        ("token-classification", {}, {"labels": InputSpec((2, 16), INT, high=2)}),
        ("multiple-choice", {}, {"labels": InputSpec((2,), INT, high=4)}),
        (
            "question-answering",
            {},
            {n: InputSpec((2,), INT, high=16) for n in ("start_positions", "end_positions")},
        ),
        (
            "pretraining",
            {},
            {
                "labels": InputSpec((2, 16), INT, high=100),
                "next_sentence_label": InputSpec((2,), INT, high=2),
            },
        ),
        ("base", {}, {}),
    ],
)
def test_a_task_picks_the_head_and_its_labels(
    write: Any, task: str, changes: dict[str, Any], labels: dict[str, InputSpec]
) -> None:
    subject = load(write(BERT, **changes), batch=2, seq=16, task=task, labels=True)
    kwargs = dict(subject.kwargs)
    assert kwargs.pop("input_ids").shape[-1] == kwargs.pop("attention_mask").shape[-1] == 16
    assert kwargs == labels


def test_an_encoder_decoder_without_labels_gets_the_decoders_ids(write: Any) -> None:
    shapes = _shapes(load(write(T5), seq=16).kwargs)
    assert shapes["decoder_input_ids"] == (1, 16)
    assert "labels" not in shapes


def test_a_model_with_two_texts_gets_the_encoders_ids(write: Any) -> None:
    """transformers asks which of the two is meant."""
    decoder = {"model_type": "musicgen_melody_decoder", "hidden_size": 32, "vocab_size": 50}
    decoder |= {"num_hidden_layers": 1, "num_attention_heads": 4, "ffn_dim": 64, "pad_token_id": 0}
    audio = {"model_type": "encodec", "num_filters": 4, "hidden_size": 16, "codebook_size": 64}
    config = {"model_type": "musicgen_melody", "decoder": decoder | {"bos_token_id": 0}}
    config |= {"text_encoder": T5, "audio_encoder": audio}
    config |= {"architectures": ["MusicgenMelodyForConditionalGeneration"]}

    subject = load(write(config), batch=2, seq=16)

    assert type(subject.model).__name__ == "MusicgenMelodyForConditionalGeneration"
    assert subject.kwargs["input_ids"] == InputSpec((2, 16), INT, high=100)


def test_images_have_the_configurations_size_and_the_models_dtype(write: Any) -> None:
    subject = load(write(VIT), batch=2, dtype=torch.bfloat16, labels=True)
    assert type(subject.model).__name__ == "ViTForImageClassification"
    assert subject.kwargs["pixel_values"] == InputSpec((2, 3, 32, 32), torch.bfloat16)
    assert subject.kwargs["labels"] == InputSpec((2,), INT, high=2)


def test_architectures_and_the_dtype_of_the_configuration_are_kept(write: Any) -> None:
    config = write(BERT, architectures=["BertForTokenClassification"], dtype="bfloat16")
    subject = load(config, seq=16)
    assert type(subject.model).__name__ == "BertForTokenClassification"
    assert {p.dtype for p in subject.model.parameters()} == {torch.bfloat16}
    assert next(load(config, seq=16, dtype=torch.float32).model.parameters()).dtype is torch.float32


def test_tied_weights_are_one_parameter(write: Any) -> None:
    model = load(write(GPT2), seq=16).model
    tied = model.get_parameter("transformer.wte.weight")
    assert model.get_submodule("lm_head").weight is tied


def test_given_ids_decide_the_other_inputs(write: Any) -> None:
    for ids in ("input_ids=4x24:int64", "4x24:int64"):
        subject = load(write(GPT2), inputs=(ids,), labels=True)
        assert subject.kwargs["labels"].shape == (4, 24)
        assert subject.kwargs["attention_mask"].shape == (4, 24)
    again = load(write(GPT2), inputs=("input_ids=4x24:int64",), batch=6, labels=True)
    assert {shape[0] for shape in _shapes(again.kwargs).values()} == {6}


def test_a_folder_is_read_for_its_configuration(write: Any, tmp_path: Path) -> None:
    write(GPT2)
    assert load(f"hf:{tmp_path}", seq=16).kind == "hf"


@pytest.mark.parametrize(
    ("config", "asked", "message"),
    [
        (LLAMA, {}, "give the sequence length with --seq N (the model takes up to 8192)"),
        (GPT2, {"seq": 2000}, "--seq 2000: the model takes up to 1024"),
        (BERT, {"seq": 8, "task": "tokn-classification"}, "did you mean 'token-classification'?"),
        (GPT2, {"seq": 8, "inputs": ("input_idz=1x8:int64",)}, "did you mean 'input_ids'?"),
        ({"model_type": "resnet"}, {}, "give it with --input pixel_values=8x3x224x224"),
        (
            {"model_type": "wav2vec2", "architectures": ["Wav2Vec2ForCTC"]},
            {"seq": 16000, "labels": True},
            "the labels of Wav2Vec2ForCTC can't be made",
        ),
        ({"model_type": "wav2vec2"}, {}, "give the number of samples with --seq N"),
    ],
)
def test_what_cant_be_known_is_asked_for_by_name(
    write: Any, config: dict[str, Any], asked: dict[str, Any], message: str
) -> None:
    refused(InputError, message, write(config), **asked)


@pytest.mark.parametrize(
    ("config", "asked", "message"),
    [
        ({"model_type": "lama"}, {}, "has no model 'lama'; did you mean 'llama'?"),
        ({"model_type": "mine-4", "auto_map": {}}, {}, "it runs code of its own (auto_map)"),
        ({"hidden_size": 8}, {}, "has no model_type; is it a model's config.json?"),
        (BERT, {"task": "image-classification"}, "no bert model for image-classification"),
        (GPT2 | {"n_head": 5}, {"seq": 8}, "must be divisible by num_heads"),
        (GPT2 | {"n_embd": "many"}, {}, "transformers refuses this gpt2"),
    ],
)
def test_a_configuration_that_cant_be_built_is_refused_in_one_line(
    write: Any, config: dict[str, Any], asked: dict[str, Any], message: str
) -> None:
    refused(ModelLoadError, message, write(config), **asked)


def test_a_path_that_holds_no_configuration_is_refused(tmp_path: Path) -> None:
    refused(ModelLoadError, "no config.json in this folder", f"hf:{tmp_path}")
    refused(ModelLoadError, "no such file or folder", f"hf:{tmp_path}/none.json")
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    refused(ModelLoadError, "bad.json is no JSON file", f"hf:{tmp_path}/bad.json")


def test_without_transformers_the_extra_is_named(
    write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    refused(ModelLoadError, "pip install 'graphmem[hf]'", write(GPT2))
