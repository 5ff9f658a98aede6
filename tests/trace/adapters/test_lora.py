"""LoRA by peft's modules, on a copy of the model."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import graphmem
from graphmem.errors import UsageError
from graphmem.trace.adapters import LoraSettings

MIB = 2**20


class Net(nn.Module):
    """Three layers with names."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.value, self.out = (nn.Linear(64, 64, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.query(x) + self.value(x))


def _report(model: nn.Module, lora: Any, **options: Any) -> graphmem.Report:
    pytest.importorskip("peft")
    options = {"target": "cpu", **options}
    return graphmem.analyze(model, graphmem.spec("8x64"), lora=lora, **options)


def test_adapters_are_trained_and_all_else_is_frozen() -> None:
    report = _report(Net(), "r=4,targets=query+value")
    # two pairs of 4 x 64 and 64 x 4
    assert report.subject.trainable_parameters == 2 * 2 * 4 * 64
    assert report.subject.parameters == 3 * 64 * 64 + 2 * 2 * 4 * 64
    # two states of fp32, and a step for each of four tensors
    assert sum(layer.optimizer_bytes for layer in report.layers) == 8 * 1024 + 4 * 4


def test_the_model_is_left_as_it_was() -> None:
    model = Net()
    before = copy.deepcopy(model.state_dict())
    _report(model, "r=4,targets=query")
    assert type(model.query) is nn.Linear
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_adapters_of_half_precision_weights_are_in_fp32() -> None:
    report = _report(Net(), "r=4,targets=query", precision="bf16")
    assert sum(layer.parameter_bytes for layer in report.layers) == (
        2 * 3 * 64 * 64 + 4 * 2 * 4 * 64
    )


def test_a_dict_is_the_same_as_a_text_and_as_peft_by_hand() -> None:
    peft = pytest.importorskip("peft")
    text = _report(Net(), "r=4,alpha=8,targets=query+out,dropout=0.1,save=value")
    given = {"r": 4, "alpha": 8, "targets": ["query", "out"], "dropout": 0.1, "save": ["value"]}
    assert _report(Net(), given).peak == text.peak
    config = peft.LoraConfig(
        r=4,
        lora_alpha=8,
        target_modules=["query", "out"],
        lora_dropout=0.1,
        modules_to_save=["value"],
    )
    model = peft.get_peft_model(Net(), config)
    own = graphmem.analyze(model, graphmem.spec("8x64"), target="cpu")
    assert own.peak.allocated_bytes == text.peak.allocated_bytes
    assert own.steps == text.steps


def test_adapters_around_packed_weights_train() -> None:
    report = _report(Net(), "r=4,targets=query", quantize="nf4", precision="bf16")
    assert report.subject.trainable_parameters == 2 * 4 * 64
    # 64 * 64 / 2 B, 64 maxima and 16 values for each of three; adapters in fp32
    assert report.breakdown["parameters"] == 3 * (2048 + 256 + 64) + 4 * 2 * 4 * 64


@pytest.mark.parametrize(
    ("lora", "error"),
    [
        ("r=4,targets=qeury", "no module is called 'qeury'; did you mean 'query'?"),
        ("rank=4", "'rank' is not one of r, alpha, dropout"),
        ("r=x,targets=query", "r=x is not a value of type int"),
        ("r", "'r' is not NAME=VALUE"),
        ("r=0,targets=query", "r"),
    ],
)
def test_a_mistake_is_one_line(lora: str, error: str) -> None:
    with pytest.raises(UsageError) as raised:
        _report(Net(), lora)
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_settings_are_told_as_they_are_written() -> None:
    text = "r=16,alpha=32,dropout=0.05,targets=q_proj+v_proj"
    assert LoraSettings.of(text).to_text() == text
    assert LoraSettings.of({"r": 8}).to_text() == "r=8"


def test_a_published_resnet_50_holds_twice_the_activations_with_dropout() -> None:
    """huggingface/peft issue 2196: batch 16, torch's MemTracker on the CPU.

    Activations of full fine-tuning: 1,310.95 MiB. With LoRA of rank 4 on all convolutions but
    the first (317,772 parameters are trained) and dropout: 2,618.32 MiB, with the images.
    """
    torchvision = pytest.importorskip("torchvision")
    model = torchvision.models.resnet50()
    model.fc = nn.Linear(2048, 1)
    images = 16 * 3 * 224 * 224 * 4

    def held(lora: str | None) -> tuple[int, int]:
        spec = graphmem.spec("16x3x224x224")
        report = graphmem.analyze(model, spec, lora=lora, target="cpu")
        saved = sum(layer.saved_bytes for layer in report.layers)
        return report.subject.trainable_parameters, saved

    trained, saved = held(None)
    assert trained == 23_510_081
    assert saved == pytest.approx(1310.95 * MIB, rel=2e-4)
    pytest.importorskip("peft")
    lora = "r=4,targets=conv1+conv2+conv3+downsample.0,dropout=0.1"
    trained, saved = held(lora)
    assert trained == 317_772
    assert saved + images == pytest.approx(2618.32 * MIB, abs=0.01 * MIB)


def test_a_model_prepared_for_packed_weights_has_all_else_in_fp32() -> None:
    model = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64, bias=False))
    packed = _report(model, "r=4,targets=1,kbit=true", quantize="nf4", precision="bf16")
    # weight and bias of the norm, half a byte a weight with 64 maxima and 16 levels, adapters
    assert packed.breakdown["parameters"] == 4 * 2 * 64 + (2048 + 256 + 64) + 4 * 2 * 4 * 64
    assert packed.subject.trainable_parameters == 2 * 4 * 64
