"""Predictions beside real runs on the CPU under torch's profiler: the ground truth.

A kernel that converts a Python number takes a few bytes for it (8 for the number as a
double, 4 for its copy as a float), hence the tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from graphmem.measure.cpu import Verification, verify
from tests.trace import subjects

TOLERANCE_BYTES = 64

X = torch.randn(128, 64)
IDS = torch.randint(500, (4, 32), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def without_onednn() -> Iterator[None]:
    """OneDNN takes scratch for bfloat16 products where the CPU has instructions for them."""
    was_on = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    yield
    torch._C._set_mkldnn_enabled(was_on)


def assert_exact(verification: Verification) -> None:
    assert abs(verification.difference_bytes) <= TOLERANCE_BYTES, verification


@pytest.mark.parametrize(
    "optimizer",
    [
        "sgd",
        "sgd+momentum",
        "adam",
        "adamw",
        "amsgrad",
        "nadam",
        "radam",
        "adamax",
        "rmsprop",
        "adagrad",
        "adadelta",
        "asgd",
        "rprop",
        "adafactor",
    ],
)
def test_an_mlp_under_every_optimizer(optimizer: str) -> None:
    assert_exact(verify(subjects.mlp(), X, optimizer=optimizer))


@pytest.mark.parametrize("implementation", ["foreach", "fused"])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "adagrad"])
def test_an_mlp_under_foreach_and_fused_optimizers(optimizer: str, implementation: str) -> None:
    options: dict[str, Any] = {implementation: True}
    assert_exact(verify(subjects.mlp(), X, optimizer=optimizer, **options))


def test_muon_on_matrices() -> None:
    model = nn.Sequential(nn.Linear(64, 256, bias=False), nn.GELU(), nn.Linear(256, 32, bias=False))
    assert_exact(verify(model, X, optimizer="muon"))


def test_lbfgs_that_has_not_converged() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8))
    target = torch.randn(64, 8)

    def loss(output: torch.Tensor) -> torch.Tensor:
        return ((output - target) ** 2).mean()

    verification = verify(model, torch.randn(64, 16), optimizer="lbfgs", loss=loss, steps=1)
    # The trace counts the target, which the loss brings along; the real run had it before.
    assert abs(verification.difference_bytes + 64 * 8 * 4) <= TOLERANCE_BYTES


@pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")  # torch's own
@pytest.mark.parametrize("optimizer", ["sgd", "adagrad"])
def test_sparse_embedding_gradients(optimizer: str) -> None:
    model = nn.Embedding(1000, 64, sparse=True)
    ids = torch.arange(64).reshape(4, 16)
    assert_exact(verify(model, ids, optimizer=optimizer))


@pytest.mark.parametrize(
    ("model", "inputs", "options"),
    [
        pytest.param(subjects.Residual(), torch.randn(256, 128), {}, id="residual"),
        pytest.param(subjects.Tied(), IDS, {"loss": lambda loss: loss}, id="tied head"),
        pytest.param(subjects.mlp(), X, {"accumulate": 4}, id="accumulation"),
        pytest.param(subjects.Residual(), torch.randn(256, 128), {"accumulate": 4}, id="both"),
        pytest.param(subjects.mlp(), X, {"clip_grad_norm": 1.0}, id="clipping"),
        pytest.param(subjects.mlp(), X, {"set_to_none": False}, id="gradients kept"),
        pytest.param(subjects.Checkpointed(True), X.clone().requires_grad_(), {}, id="reentrant"),
        pytest.param(subjects.Checkpointed(False), X, {}, id="checkpoint, not reentrant"),
        pytest.param(subjects.WithFunction(), X, {}, id="autograd.Function"),
        pytest.param(subjects.SecondOrder(), X.clone().requires_grad_(), {}, id="second order"),
        pytest.param(subjects.Mapped(), X, {}, id="torch.func"),
        pytest.param(subjects.NotContiguous(), torch.randn(8, 16, 64), {}, id="bias apart"),
        pytest.param(subjects.SpelledOut(), torch.randn(8, 16, 64), {}, id="bias in Python"),
        pytest.param(subjects.partly_frozen(), X, {}, id="frozen"),
        pytest.param(subjects.hooked(), X, {}, id="hooks"),
        pytest.param(subjects.mlp(), X, {"precision": "bf16"}, id="bf16"),
        pytest.param(subjects.mlp(), X, {"precision": "amp-bf16"}, id="autocast"),
        pytest.param(subjects.mlp(), X, {"steps": 4}, id="four steps"),
        pytest.param(
            nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2),
            torch.randn(8, 16, 64),
            {},
            id="transformer encoder",
        ),
        pytest.param(
            subjects.OnBatch(),
            subjects.Batch(X, torch.arange(128) > 5),
            {"optimizer": "sgd"},
            id="dataclass",
        ),
    ],
)
@pytest.mark.usefixtures("without_onednn")
def test_a_training_step(model: nn.Module, inputs: Any, options: dict[str, Any]) -> None:
    assert_exact(verify(model, inputs, **options))


@pytest.mark.parametrize("grad", ["no_grad", "inference_mode", "enabled"])
@pytest.mark.parametrize(
    "model",
    [subjects.mlp(), subjects.NotContiguous(), subjects.SpelledOut()],
    ids=["mlp", "bias apart", "bias in Python"],
)
def test_an_inference(model: nn.Module, grad: str) -> None:
    inputs = X if isinstance(model, nn.Sequential) else torch.randn(8, 16, 64)
    assert_exact(verify(model, inputs, mode="inference", grad=grad))


def test_what_convolutions_allocate_for_themselves_is_named() -> None:
    verification = verify(subjects.convolutions(), torch.randn(4, 3, 64, 64), optimizer="sgd")

    assert verification.unexplained_bytes == 0
    operators = {row.operator for row in verification.scratch if row.bytes > 1000}
    assert operators <= {
        "aten::mkldnn_convolution",
        "aten::convolution_backward",
        "aten::native_batch_norm",
        "aten::native_batch_norm_backward",
        "aten::max_pool2d_with_indices",
    }
    assert operators  # oneDNN does take some


def test_what_an_lstm_allocates_for_itself_is_named() -> None:
    model = nn.LSTM(32, 64, batch_first=True)
    verification = verify(model, torch.randn(4, 16, 32), loss=lambda out: out[0].mean())

    assert verification.difference_bytes > TOLERANCE_BYTES
    largest = verification.scratch[0]
    assert largest.operator.startswith("aten::mkldnn_rnn_layer")
    assert largest.kind == "allocated, not predicted"
