"""Tests of finding a GPU by what people call it."""

from __future__ import annotations

import pytest

from graphmem import devices
from graphmem.errors import UsageError


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("A100-80GB", "A100-80GB"),
        ("a100-80gb", "A100-80GB"),
        ("A100 80 GB", "A100-80GB"),
        ("a100-80", "A100-80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("Tesla T4", "T4"),
        ("l40s", "L40S"),
        ("4090", "RTX 4090"),
        ("rtx4090", "RTX 4090"),
        ("RTX-4090-24GB", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "RTX 4090 Laptop"),
        ("4090 laptop", "RTX 4090 Laptop"),
        ("h100", "H100-80GB"),
        ("rtx 5060 ti 16gb", "RTX 5060 Ti 16GB"),
    ],
)
def test_a_gpu_is_found_by_its_name_full_name_or_alias(asked: str, name: str) -> None:
    assert devices.find(asked).name == name


@pytest.mark.parametrize(
    ("asked", "variants"),
    [
        ("A100", "A100-40GB, A100-80GB"),
        ("v100", "V100-16GB, V100-32GB"),
        ("NVIDIA GeForce RTX 5060 Ti", "RTX 5060 Ti 8GB, RTX 5060 Ti 16GB"),
    ],
)
def test_a_name_of_several_gpus_is_refused_with_their_names(asked: str, variants: str) -> None:
    with pytest.raises(UsageError, match=f"device '{asked}' may be any of {variants}: name one"):
        devices.find(asked)


@pytest.mark.parametrize(
    ("asked", "near"),
    [("rtx 4091", "RTX 4090"), ("A100-60GB", "A100-80GB"), ("L50S", "L40S"), ("TT4", "T4")],
)
def test_an_unknown_name_is_refused_with_the_nearest(asked: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"device '{asked}' is not a known GPU; did.*{near}"):
        devices.find(asked)


@pytest.mark.parametrize("asked", ["", "  ", "nvidia", "\N{SNOWMAN}"])
def test_a_name_that_says_nothing_is_refused_without_a_guess(asked: str) -> None:
    with pytest.raises(UsageError, match=r"is not a known GPU \(graphmem devices lists all\)$"):
        devices.find(asked)


@pytest.mark.parametrize("gpu", devices.GPUS, ids=lambda gpu: gpu.name)
def test_every_gpu_is_found_by_its_own_name(gpu: devices.Gpu) -> None:
    assert devices.find(gpu.name) is gpu


def test_a_shared_name_is_shared_only_by_variants_of_one_model() -> None:
    for gpu in devices.GPUS:
        for other in devices.GPUS:
            if gpu is not other and gpu.full_name == other.full_name:
                assert gpu.capacity_bytes != other.capacity_bytes
                assert gpu.multiprocessors == other.multiprocessors
