"""The callback of Lightning's Trainer, in a training on the CPU."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import graphmem

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lightning = pytest.importorskip("lightning.pytorch")

    from graphmem.callbacks.lightning import MemoryCallback

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own, by the dozen


class _Net(lightning.LightningModule):  # type: ignore[misc, name-defined]
    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 8))

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def _fit(folder: Path, callbacks: list[Any], module: Any = None, **options: Any) -> Any:
    lightning.seed_everything(0)
    module = module or _Net()
    data = TensorDataset(torch.randn(64, 64), torch.randint(8, (64,)))
    trainer = lightning.Trainer(
        max_steps=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=callbacks,
        **options,
    )
    trainer.fit(module, DataLoader(data, batch_size=16))
    return module


def test_the_prediction_is_of_the_step_that_lightning_runs(tmp_path: Path) -> None:
    said: list[str] = []
    callback = MemoryCallback(device="L4", say=said.append)
    _fit(tmp_path, [callback])
    assert callback.report is not None
    assert said[0].startswith("graphmem: Peak ")
    module = _Net()
    optimizer = module.configure_optimizers()
    x, y = torch.randn(16, 64), torch.randint(8, (16,))

    def step() -> None:
        def closure() -> Any:
            loss = nn.functional.cross_entropy(module.net(x), y) / 1  # as Lightning does
            kept = loss.detach().clone()
            optimizer.zero_grad()  # after the forward, as Lightning does
            loss.backward()
            return kept

        optimizer.step(closure)

    own = graphmem.record(step, device="L4")
    assert callback.report.peak.allocated_bytes == own.peak.allocated_bytes
    assert callback.report.steps == own.steps


def test_a_training_with_it_is_the_training_without_it(tmp_path: Path) -> None:
    one = _fit(tmp_path, [MemoryCallback(say=lambda line: None)])
    two = _fit(tmp_path, [])
    for first, second in zip(one.parameters(), two.parameters(), strict=True):
        assert torch.equal(first, second)
    assert "log" not in vars(one)  # its own again


def test_what_it_cannot_predict_is_told_and_trained(tmp_path: Path) -> None:
    said: list[str] = []
    callback = MemoryCallback(say=said.append, assume={"x": 1})
    _fit(tmp_path, [callback])
    assert callback.report is None
    assert said[0].startswith("graphmem: no prediction: ")


@pytest.mark.parametrize("options", [{"accumulate_grad_batches": 2}, {"gradient_clip_val": 1.0}])
def test_accumulation_and_clipping_are_part_of_it(tmp_path: Path, options: Any) -> None:
    plain = MemoryCallback(say=lambda line: None)
    other = MemoryCallback(say=lambda line: None)
    _fit(tmp_path, [plain])
    _fit(tmp_path, [other], **options)
    assert plain.report is not None
    assert other.report is not None
    assert len(other.report.history.moments) > len(plain.report.history.moments)
