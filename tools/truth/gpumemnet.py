"""Slopes of GPUMemNet: what one more image in the batch costs, for 65 models of timm.

The largest figure of nvidia-smi at batch 64, less that at batch 32, over 32: context and
whatever else is constant cancel. Measured are segments, so the prediction is the growth of
reserved bytes. Precision and optimizer were inferred from the file's constants.

Known differences: the training script is not known. timm's own sets cuDNN's benchmark
mode, whose workspaces are others than those of the heuristics' first plan; a slope over 32
images moves in steps of 2 MiB / 32, and with how the segments happen to fit.

Source: Related_works/FakeTensor/fake_tensor.xlsx of itu-rad/GPUMemNet at f01eb05.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

import graphmem
from tools.truth import outcome
from tools.truth.outcome import Bar, Outcome
from tools.truth.rows import Row
from tools.truth.runs import GPUS

BARS = (
    Bar("attention and MLP models", outcome.off_centre, 0.02, "attention/mlp"),
    Bar("conv nets", outcome.off_centre, None, "conv"),
)

BATCHES = 32, 64


def takes(row: Row) -> bool:
    """All of GPUMemNet's."""
    return row.source.startswith("itu-rad/GPUMemNet")


def outcomes(rows: Sequence[Row]) -> Iterator[Outcome]:
    """Predict the slope of every model."""
    for row in rows:
        small, large = (_reserved(row.model, batch, row.gpu) for batch in BATCHES)
        slope = (large - small) / (BATCHES[1] - BATCHES[0])
        yield outcome.of("gpumemnet", row, group=row.notes, predicted=slope)


def _reserved(name: str, batch: int, gpu: str) -> int:
    import timm

    with torch.device("meta"):
        model: Any = timm.create_model(name)
    size = model.default_cfg["input_size"]
    labels = torch.empty(batch, dtype=torch.int64, device="meta")
    report = graphmem.analyze(
        model,
        torch.empty(batch, *size, device="meta"),
        loss=lambda scores: nn.functional.cross_entropy(scores, labels),
        optimizer="sgd+momentum",
        device=GPUS[gpu],
    )
    assert report.peak.reserved_bytes is not None  # the target is CUDA
    return report.peak.reserved_bytes
