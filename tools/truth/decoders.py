"""The decoder of ``models/decoder.py`` at 2,560 wide: whole steps of EnzoDing-rgb.

Stages, bf16 autocast and checkpointed segments of blocks, each as the script does it: the
warm-up steps run in a function of their own, so that their logits and loss are gone before
the step that counts, which drops its gradients first and keeps its logits and loss.
``empty_cache`` in between changes no allocated byte but through which free block is taken.

Source: cs336_systems/memory_profiling/profile.py and gradient_checkpointing/profile.py of
EnzoDing-rgb/cs336-assignment2-systems at 9cb4efb.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from models.decoder import SIZE_2_7B, Decoder, decoder
from models.decoder_training import DecoderAdamW, batches, cross_entropy
from tools.truth import outcome
from tools.truth.outcome import Bar, Outcome
from tools.truth.rows import Row
from tools.truth.runs import Run, mark, run

BARS = (
    Bar("fp32", outcome.worst, 0.005, "fp32"),
    Bar("fp32, checkpointed segments", outcome.worst, 0.005, "checkpointed"),
    Bar("bf16 autocast", outcome.worst, 0.005, "autocast"),
)

GPU = "A800-SXM4-80GB"


def takes(row: Row) -> bool:
    """Whole models of EnzoDing-rgb."""
    return row.model == "CS336 LM xl"


def outcomes(rows: Sequence[Row]) -> Iterator[Outcome]:
    """Predict the rows of one GPU."""
    for row in rows:
        stage = row.metric.removeprefix("peak_allocated ")
        if row.gpu != GPU:
            why = "several GPUs, by the author's own data parallelism"
            yield outcome.of("decoders", row, skipped=why)
            continue
        length, segment = int(row.shape.partition("=")[2]), _segment(row.checkpointing)
        name = f"2,560 wide, {row.shape}, {row.dtype}"
        if segment is not None:
            name += f", {segment} blocks a segment"
        group = "checkpointed" if segment else "fp32" if row.dtype == "fp32" else "autocast"
        if stage == "forward":
            predicted = _forward(length, row.dtype).peak()
        else:
            warm_up = 1 if stage == "full step" or row.is_lower_bound else 2
            traced = _training(length, row.dtype, segment, warm_up)
            predicted = traced.peak(*STAGES.get(stage, (0, -1)))
            if row.is_lower_bound:
                predicted = traced.report.peak.reserved_bytes or 0
        yield outcome.of("decoders", row, name=name, group=group, predicted=predicted)


STAGES = {"stage fwd": (0, 1), "stage loss": (1, 2), "stage bwd": (2, 3), "stage opt": (3, 4)}
"""The marks between which a stage runs."""


def _segment(checkpointing: str) -> int | None:
    found = re.search(r"segment=(\d+)", checkpointing)
    return int(found[1]) if found else None


def _autocast(dtype: str) -> contextlib.AbstractContextManager[Any]:
    if dtype == "fp32":
        return contextlib.nullcontext()
    return torch.autocast("cuda", dtype=torch.bfloat16)


def _model(length: int) -> Decoder:
    with torch.device("meta"):
        return decoder(dataclasses.replace(SIZE_2_7B, context=length))[0]


@cache
def _forward(length: int, dtype: str) -> Run:
    """A forward that keeps its graph, after two more in a function of their own."""
    model = _model(length)

    def warm_up(ids: Tensor) -> None:
        for _ in range(2):
            with _autocast(dtype):
                _ = model(ids)

    def script() -> None:
        ids, targets = (rows[0] for rows in batches(SIZE_2_7B.vocab, 1, 4, length))
        warm_up(ids)
        mark()
        with _autocast(dtype):
            logits = model(ids)
        mark()
        assert logits.dim() == targets.dim() + 1  # both alive until here

    return run(script, GPU)


@cache
def _training(length: int, dtype: str, segment: int | None, warm_up_steps: int) -> Run:
    """One step with its stages marked, after warm-up steps in a function of their own."""
    model = _model(length)
    optimizer = DecoderAdamW(model.parameters())

    def warm_up(ids: Tensor, targets: Tensor) -> None:
        for _ in range(warm_up_steps):
            optimizer.zero_grad(set_to_none=True)
            with _autocast(dtype):
                logits = forward(model, ids, segment)
                loss = cross_entropy(logits, targets)
            loss.backward()
            optimizer.step()

    def script() -> None:
        ids, targets = (rows[0] for rows in batches(SIZE_2_7B.vocab, 1, 4, length))
        warm_up(ids, targets)
        optimizer.zero_grad(set_to_none=True)
        mark()
        with _autocast(dtype):
            logits = forward(model, ids, segment)
        mark()
        with _autocast(dtype):
            loss = cross_entropy(logits, targets)
        mark()
        loss.backward()
        mark()
        optimizer.step()
        mark()

    return run(script, GPU)


def forward(model: Decoder, ids: Tensor, segment: int | None) -> Tensor:
    """The model's forward, with its blocks in checkpointed segments of some length."""
    x = model.embedding(ids)
    if segment is None:
        for block in model.blocks:
            x = block(x)
    else:
        for start in range(0, len(model.blocks), segment):
            blocks = model.blocks[start : start + segment]

            def through(inner: Tensor, blocks: Any = blocks) -> Tensor:
                for block in blocks:
                    inner = block(inner)
                return inner

            x = checkpoint(through, x, use_reentrant=False)
    x = model.norm(x)
    return model.head(x)  # type: ignore[no-any-return]
