"""Techniques that save memory, predicted beside real runs on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from graphmem.commands.verify import TOLERANCE_BYTES
from graphmem.measure.cpu import Verification, verify
from tests.trace import subjects
from tests.trace.techniques import MODELS, Small

pytestmark = pytest.mark.usefixtures("without_onednn")


@pytest.fixture
def without_onednn() -> Iterator[None]:
    """OneDNN takes scratch for itself, which depends on the CPU."""
    was_on = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    yield
    torch._C._set_mkldnn_enabled(was_on)


def assert_exact(verification: Verification) -> None:
    """No more than scalars; a convolution's own scratch is measured, and named."""
    assert abs(verification.unexplained_bytes) <= TOLERANCE_BYTES, verification


def verified(small: Small, **options: Any) -> Verification:
    return verify(small.model, small.inputs, optimizer="sgd", **options)


@pytest.mark.parametrize("model", MODELS)
def test_every_block_checkpointed(model: str) -> None:
    small = MODELS[model]()
    assert_exact(verified(small, checkpoint=small.blocks))


@pytest.mark.parametrize("model", MODELS)
def test_every_block_checkpointed_reentrant(model: str) -> None:
    small = MODELS[model]()
    assert_exact(verified(small, checkpoint=small.blocks, checkpoint_reentrant=True))


@pytest.mark.parametrize("model", MODELS)
def test_selective_checkpoints(model: str) -> None:
    small = MODELS[model]()
    assert_exact(verified(small, checkpoint=small.blocks, checkpoint_save=small.keep))


@pytest.mark.parametrize("model", MODELS)
def test_an_optimizer_in_backward(model: str) -> None:
    small = MODELS[model]()
    assert_exact(verify(small.model, small.inputs, optimizer_in_backward=True))


@pytest.mark.parametrize(
    ("model", "optimizer", "offload"),
    [
        ("gpt2", "sgd", "activations"),
        ("llama", "sgd", "activations"),
        ("vit", "adamw", "activations"),
        ("resnet", "adamw", "activations"),
        ("gpt2", "adamw", "optimizer"),
        ("llama", "sgd", "optimizer"),
        ("resnet", "adamw", "optimizer"),
    ],
)
def test_offloading(model: str, optimizer: str, offload: str) -> None:
    """To the byte: with AdamW the peak is in its step, where no convolution has scratch.

    What the hooks copy happens inside of the operator that saves, for the profiler, and before
    it for the trace, so that scratch of that operator can't be told from its results.
    """
    small = MODELS[model]()
    verification = verify(
        small.model,
        small.inputs,
        optimizer=optimizer,
        foreach=False,
        offload=offload,
        pin_memory=True,
    )
    assert abs(verification.difference_bytes) <= TOLERANCE_BYTES, verification


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"checkpoint_every": 2}, id="every second"),
        pytest.param({"accumulate": 2}, id="accumulation"),
        pytest.param({"precision": "amp-bf16"}, id="autocast"),
        pytest.param({"offload": "activations", "pin_memory": True}, id="inputs offloaded"),
        pytest.param({"optimizer_in_backward": True}, id="optimizer in backward"),
        pytest.param({"chunked_loss": 3}, id="chunked loss"),
    ],
)
def test_checkpoints_with_other_techniques(options: dict[str, Any]) -> None:
    small = MODELS["gpt2"]()
    assert_exact(verified(small, checkpoint=small.blocks, **options))


@pytest.mark.parametrize("model", ["gpt2", "llama"])
def test_a_chunked_loss(model: str) -> None:
    assert_exact(verified(MODELS[model](), chunked_loss=4))


def test_channels_last() -> None:
    assert_exact(verified(MODELS["resnet"](), channels_last=True))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"clip_grad_norm": 1.0}, id="clipping"),
        pytest.param({"accumulate": 2}, id="accumulation"),
        pytest.param({"precision": "bf16", "master_weights": True}, id="fp32 on the host"),
        pytest.param({"optimizer": "sgd+momentum"}, id="momentum"),
    ],
)
def test_an_offloaded_optimizer(options: dict[str, Any]) -> None:
    options = {"foreach": False, "offload": "optimizer", **options}
    assert_exact(verify(subjects.mlp(), torch.randn(128, 64), **options))


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "adagrad"])
def test_optimizers_in_backward(optimizer: str) -> None:
    options: dict[str, Any] = {"optimizer": optimizer, "optimizer_in_backward": True}
    assert_exact(verify(subjects.Residual(), torch.randn(256, 128), **options))


def test_nested_checkpoints() -> None:
    small = MODELS["gpt2"]()
    assert_exact(verified(small, checkpoint=[small.blocks, "transformer.h.*.mlp"]))
