"""Families of runs with techniques that save memory: the schedules are those of traces."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from graphmem.instantiate import Family
from tests.instantiate import subjects


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"checkpoint": "*"}, id="checkpoints"),
        pytest.param({"checkpoint": "*", "checkpoint_save": "aten.addmm"}, id="selective"),
        pytest.param({"offload": "activations", "pin_memory": True}, id="activations"),
        pytest.param({"offload": "optimizer"}, id="optimizer"),
        pytest.param({"optimizer_in_backward": True}, id="in backward"),
    ],
)
def test_a_run_with_a_technique_follows_in_its_batch(options: dict[str, Any]) -> None:
    blocks = (nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)) for _ in range(2))
    trace = subjects.tracer(nn.Sequential(*blocks), subjects.rows(), **options)
    family = Family(trace, range(1, 33))
    for size in (2, 7, 31):
        assert family.at(size) == trace(size).schedule, size
    assert len(family.traced) <= 4


def test_images_with_channels_last_follow_in_their_batch() -> None:
    options: dict[str, Any] = {"channels_last": True, "device": "A100-80GB"}
    trace = subjects.tracer(subjects.convnet(), subjects.images(), **options)
    family = Family(trace, range(1, 33))
    for size in (7, 31):
        assert family.at(size) == trace(size).schedule, size
