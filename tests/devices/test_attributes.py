"""What CUDA says of a GPU, from its compute capability."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphmem.devices import GPUS, find
from graphmem.devices.attributes import attributes
from graphmem.errors import InvariantError


def test_every_known_gpu_has_attributes() -> None:
    for gpu in GPUS:
        given = attributes(gpu)
        assert given["multiProcessorCount"] == gpu.multiprocessors
        assert given["maxSharedMemoryPerBlockOptin"] >= given["maxSharedMemoryPerBlock"]
        assert given["maxThreadsPerSM"] % given["warpSize"] == 0


def test_an_a100_has_the_numbers_of_the_programming_guide() -> None:
    given = attributes(find("A100-80GB"))

    assert given["deviceVer"] == 800
    assert given["maxSharedMemoryPerBlockOptin"] == 163 * 1024
    assert given["reservedSharedMemoryPerBlock"] == 1024
    assert (given["maxCtasPerSM"], given["maxThreadsPerSM"]) == (32, 2048)
    assert given["deviceName"] == "NVIDIA A100-SXM4-80GB"


def test_a_t4_has_half_the_threads_and_nothing_reserved() -> None:
    given = attributes(find("T4"))

    assert (given["maxCtasPerSM"], given["maxThreadsPerSM"]) == (16, 1024)
    assert given["reservedSharedMemoryPerBlock"] == 0


def test_an_unknown_compute_capability_is_named() -> None:
    with pytest.raises(InvariantError, match=r"SM 13\.0"):
        attributes(replace(find("T4"), compute_capability=(13, 0)))
