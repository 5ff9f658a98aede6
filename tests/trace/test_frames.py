"""A profiler that samples the threads' frames changes nothing of a trace."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

import graphmem
from graphmem.report import Report


@contextmanager
def _sampled() -> Iterator[None]:
    """Another thread takes all frames, some hundred times a second, and holds them for a while."""
    over = threading.Event()

    def sample() -> None:
        while not over.is_set():
            held = [*sys._current_frames().values()]
            for frame in held:
                if frame.f_back is not None:
                    held.append(frame.f_back)
            time.sleep(0.002)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _report() -> Report:
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    return graphmem.analyze(model, torch.zeros(1, 8), timeline=True)


def test_what_is_recorded_is_the_same_beside_a_sampling_profiler() -> None:
    alone = _report()
    taken = sys._current_frames
    with _sampled():
        beside = [_report() for _ in range(8)]
    assert all(report == alone for report in beside)
    assert sys._current_frames is taken
