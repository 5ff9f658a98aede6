"""The callback of transformers' Trainer, in a training on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import graphmem

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from graphmem.callbacks.transformers import MemoryCallback  # noqa: E402


class _Data(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        ids = torch.randint(100, (32,))  # draws random numbers
        return {"input_ids": ids, "labels": ids}


def _train(
    folder: Path, callback: MemoryCallback, steps: int = 2, **options: Any
) -> tuple[torch.nn.Module, list[float]]:
    transformers.set_seed(0)
    config = transformers.GPT2Config(n_layer=2, n_head=2, n_embd=64, vocab_size=100, n_positions=32)
    model = transformers.GPT2LMHeadModel(config)
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        max_steps=steps,
        report_to=[],
        use_cpu=True,
        logging_steps=1,
        save_strategy="no",
        disable_tqdm=True,
        dataloader_pin_memory=False,
        **options,
    )
    trainer = transformers.Trainer(
        model, arguments, train_dataset=_Data(), callbacks=[callback] if callback else []
    )
    trainer.train()
    return model, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_the_prediction_is_of_what_the_trainer_runs(tmp_path: Path) -> None:
    said: list[str] = []
    callback = MemoryCallback(device="L4", say=said.append)
    model, _ = _train(tmp_path, callback, gradient_accumulation_steps=2)
    assert callback.report is not None
    (line,) = said
    assert line.startswith("graphmem: Peak ")
    assert "fits on L4" in line
    shapes = {i.name: i.shape for i in callback.report.subject.inputs}
    assert shapes["input_ids"] == (4, 32)
    own = graphmem.analyze(
        model,
        {name: torch.zeros(4, 32, dtype=torch.int64) for name in ("input_ids", "labels")},
        optimizer=lambda parameters: torch.optim.AdamW(parameters, fused=True),
        accumulate=2,
        clip_grad_norm=1.0,
        device="L4",
    )
    assert callback.report.peak.allocated_bytes == own.peak.allocated_bytes
    assert callback.measured is None  # there is no GPU


def test_a_training_with_it_is_the_training_without_it(tmp_path: Path) -> None:
    model, losses = _train(tmp_path, MemoryCallback(say=lambda line: None))
    other, same = _train(tmp_path, None)  # type: ignore[arg-type]  # none at all
    assert losses == same
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_training_goes_on_where_there_is_no_prediction(tmp_path: Path) -> None:
    said: list[str] = []
    callback = MemoryCallback(say=said.append, precision="fp9")
    _train(tmp_path, callback)
    assert callback.report is None
    assert said == [line for line in said if line.startswith("graphmem: no prediction: ")]


def test_on_a_gpu_the_measurement_stands_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    callback = MemoryCallback(device="L4", say=said.append)
    callback._told.predict(
        lambda device: graphmem.analyze(torch.nn.Linear(8, 8), torch.zeros(2, 8), device=device)
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 10 << 20)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda: 20 << 20)
    callback._told.measure(1)
    assert len(said) == 1
    callback._told.measure(2)
    callback._told.measure(3)
    assert "fits on L4" in said[0]
    assert said[1].startswith(
        "graphmem: measured after 2 steps: 10.00 MiB allocated, 20.00 MiB reserved; the prediction"
    )
    assert len(said) == 2
