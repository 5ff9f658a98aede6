"""The 423 M decoder, beside what was measured on CUDA (truth/README.md, snapshots)."""

from __future__ import annotations

from typing import Any

import torch

from graphmem import liveness
from graphmem.allocator import block_bytes
from graphmem.analysis import make_options
from graphmem.options import Target
from graphmem.schedule import Schedule
from graphmem.trace.run import trace_callable
from models.decoder import decoder_423m
from models.decoder_training import DecoderAdamW, batches, training_step


def growth_of_the_last_step(schedule: Schedule) -> int:
    live = liveness.measure(
        schedule, lambda s: 0 if s.host else block_bytes(s.nbytes, Target.CUDA)
    ).live_bytes
    last = [op.index for op in schedule.operations if op.step == schedule.steps]
    return max(live[i] for i in last) - live[last[0]]


def test_growth_of_a_training_step_is_the_measured_one_exactly() -> None:
    with torch.device("meta"):
        model, _ = decoder_423m()
    optimizer = DecoderAdamW(model.parameters())
    ids, targets = batches(10_000, 1, 4, 128)
    kept: list[Any] = []

    def step() -> None:
        optimizer.zero_grad()
        kept.clear()  # del output, loss
        kept.append(training_step(model, optimizer, ids[0], targets[0]))

    schedule = trace_callable(step, make_options(steps=2))

    # lm423m-ctx128-train-fp32: over the level at which the step begins.
    assert growth_of_the_last_step(schedule) == 1_918_013_952


def test_growth_of_an_inference_is_the_measured_one_exactly() -> None:
    with torch.device("meta"):
        model, _ = decoder_423m()
    ids, _ = batches(10_000, 1, 4, 128)

    def step() -> None:
        with torch.inference_mode():
            model(ids[0])

    schedule = trace_callable(step, make_options(steps=2))

    # lm423m-ctx128-inference-fp32
    assert growth_of_the_last_step(schedule) == 35_651_584
