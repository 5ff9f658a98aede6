"""The same network as nn.Module and as its ONNX export: the same training, but for the export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphmem

LARGEST_DIFFERENCE = 0.01


def exported(model: nn.Module, inputs: tuple[Tensor, ...], path: Path) -> nn.Module:
    """The model through an ONNX file, with weights on the meta device."""
    torch.onnx.export(
        model.eval(),
        inputs,
        str(path),
        dynamo=False,
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
    )
    return graphmem.from_onnx(str(path), weights=False)


def resnet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    models = pytest.importorskip("torchvision.models", exc_type=ImportError)
    return models.resnet50(), (torch.randn(2, 3, 224, 224),)


def bert() -> tuple[nn.Module, tuple[Tensor, ...]]:
    transformers = pytest.importorskip("transformers")

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            config = transformers.BertConfig(num_hidden_layers=2)
            self.encoder = transformers.BertModel(config, add_pooling_layer=False)

        def forward(self, ids: Tensor) -> Any:
            return self.encoder(input_ids=ids).last_hidden_state

    return Encoder(), (torch.randint(0, 30_000, (2, 64)),)


@pytest.mark.filterwarnings("ignore")  # the exporter's own
@pytest.mark.parametrize("network", [resnet, bert])
def test_a_training_step_of_an_export_takes_what_the_module_takes(
    network: Any, tmp_path: Path
) -> None:
    model, inputs = network()
    through_onnx = exported(model, inputs, tmp_path / "model.onnx")

    own = graphmem.analyze(model, inputs).peak.allocated_bytes
    theirs = graphmem.analyze(through_onnx, inputs).peak.allocated_bytes

    assert theirs == pytest.approx(own, rel=LARGEST_DIFFERENCE)
