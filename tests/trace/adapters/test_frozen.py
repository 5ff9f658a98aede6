"""Frozen parts of a model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import graphmem
from graphmem.errors import UsageError
from graphmem.measure.cpu import verify


def _model() -> nn.Module:
    return nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(3)))


WEIGHT = 4 * 64 * 64
SPEC = graphmem.spec("8x64")


def test_frozen_layers_have_no_gradients_and_no_states() -> None:
    report = graphmem.analyze(_model(), SPEC, freeze=["0", "1"], target="cpu")
    assert (report.subject.trainable_parameters, report.subject.parameters) == (4096, 3 * 4096)
    rows = {layer.module: layer for layer in report.layers}
    assert [rows[name].gradient_bytes for name in "012"] == [0, 0, WEIGHT]
    assert [rows[name].optimizer_bytes for name in "012"] == [0, 0, 2 * WEIGHT + 4]
    # Nothing goes back through the first two: only the last keeps its input.
    assert [rows[name].saved_bytes for name in "012"] == [0, 0, 8 * 64 * 4]


def test_a_frozen_layer_after_a_trained_one_keeps_no_input() -> None:
    report = graphmem.analyze(_model(), SPEC, freeze="1", target="cpu")
    rows = {layer.module: layer for layer in report.layers}
    # The first keeps the images (inputs), the last its input; between them the weight suffices.
    assert [rows[name].saved_bytes for name in "12"] == [0, 8 * 64 * 4]


def test_the_model_stays_trainable_and_a_real_run_agrees() -> None:
    model = _model()
    result = verify(model, torch.zeros(8, 64), freeze="0", optimizer="sgd+momentum")
    assert result.unexplained_bytes == 0
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        ("layer.*", "freeze: no module's path matches 'layer.*'"),
        ("(top level)", "no parameter to train"),
    ],
)
def test_a_mistake_is_one_line(pattern: str, error: str) -> None:
    with pytest.raises(UsageError) as raised:
        graphmem.analyze(_model(), SPEC, freeze=pattern)
    assert error in str(raised.value)
