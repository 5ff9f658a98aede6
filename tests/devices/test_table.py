"""Tests of the table of GPUs, beside what others measured where that is at hand."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from graphmem.devices import DEFAULT, GPUS, Gpu, find
from graphmem.devices.context import context_of

MIB = 1 << 20
GIB = 1 << 30

EACH = pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)


def test_it_has_all_kinds_and_architectures() -> None:
    assert len(GPUS) >= 60
    assert {gpu.kind for gpu in GPUS} == {"data centre", "workstation", "consumer", "laptop"}
    assert {gpu.architecture for gpu in GPUS} == {
        "Pascal",
        "Volta",
        "Turing",
        "Ampere",
        "Ada",
        "Hopper",
        "Blackwell",
    }


def test_the_assumed_gpu_is_the_large_a100() -> None:
    assert (DEFAULT.name, DEFAULT.arch, DEFAULT.sm) == ("A100-80GB", "sm_80", 80)
    assert DEFAULT.full_name == "NVIDIA A100-SXM4-80GB"


@EACH
def test_every_capacity_has_a_source_and_an_accuracy(gpu: Gpu) -> None:
    assert re.match(r"device properties|Ultralytics|out-of-memory message", gpu.capacity_source)
    assert gpu.capacity_error_bytes in (0, MIB, GIB // 200)


@EACH
def test_torch_reports_no_more_than_the_memory_on_the_box(gpu: Gpu) -> None:
    sizes = re.findall(r"(\d+)GB", " ".join((gpu.name, *gpu.aliases)))
    for sold in map(int, sizes):
        # HBM is sold in GB of 10^9 bytes and up, GDDR in GiB; nothing keeps back a tenth.
        assert 0.90 * sold * 10**9 < gpu.capacity_bytes <= sold * GIB, gpu.name


@EACH
def test_every_attribute_is_in_the_range_of_real_gpus(gpu: Gpu) -> None:
    assert 8 <= gpu.multiprocessors <= 200
    assert MIB <= gpu.l2_cache_bytes <= 256 * MIB
    assert 1_000_000 <= gpu.sm_clock_khz <= 3_000_000
    assert 700_000 <= gpu.memory_clock_khz <= 16_000_000
    low, high = gpu.context_bytes
    assert 0 < low <= high < GIB
    assert gpu.context_source


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("A100-80GB", 79.25),
        ("A100-40GB", 39.56),
        ("T4", 14.74),
        ("RTX 4090", 23.64),
        ("RTX 5090", 31.36),
        ("RTX 3090", 23.70),
        ("H200", 139.81),
        ("B200", 178.35),
        ("V100-16GB", 15.77),
        ("RTX 6000 Ada", 47.37),
        ("L40", 44.40),
    ],
)
def test_capacities_agree_with_other_out_of_memory_messages(name: str, gib: float) -> None:
    assert find(name).capacity_bytes / GIB == pytest.approx(gib, abs=0.011)


# -- contexts


@pytest.mark.parametrize(
    ("name", "low", "high", "source"),
    [
        ("T4", 114, 154, "measured"),
        ("A100-80GB", 512, 531, "measured"),
        ("A30", 512, 531, "of A100, compute capability 8.0 too"),
        ("L4", 399, 514, "of L40S, RTX 4090, RTX 6000 Ada, compute capability 8.9 too"),
        ("B300", 712, 712, "of B200, compute capability 10.x too"),
        ("P100-16GB", 114, 712, "of all GPUs that were measured: none has this architecture"),
    ],
)
def test_a_context_is_that_of_the_model_else_of_its_family_else_of_all(
    name: str, low: int, high: int, source: str
) -> None:
    gpu = find(name)
    assert gpu.context_bytes == (low * MIB, high * MIB)
    assert gpu.context_source == source


def test_a_family_is_all_of_one_compute_capability() -> None:
    both, _ = context_of("an unknown Ampere GPU", (8, 7))
    assert both == (256 * MIB, 531 * MIB)  # 8.0, 8.6 and 8.9 together


TRUTH = Path(__file__).parents[2].parent / "shared" / "truth" / "contexts.csv"
OUT_OF_RANGE = re.compile(r"NCCL|outlier|pre lazy|TP=|includes|non_torch|DDP|communicator")


@pytest.mark.skipif(not TRUTH.exists(), reason="contexts.csv is not beside this checkout")
@pytest.mark.parametrize(
    "name", ["T4", "RTX 3090", "V100-16GB", "RTX 4090", "L40S", "A100-40GB", "H200", "RTX 5090"]
)
def test_measured_contexts_are_the_range_of_the_public_reports(name: str) -> None:
    model = name.split("-")[0]
    with TRUTH.open(encoding="utf-8", newline="") as file:
        sizes = [
            int(row["mib"])
            for row in csv.DictReader(file)
            if row["gpu"].split(" (")[0].split("/")[0].startswith(model)
            and row["mib"].isdecimal()
            and not OUT_OF_RANGE.search(row["notes"] + row["method"] + row["torch"])
        ]
    low, high = find(name).context_bytes
    assert sizes
    assert low // MIB <= min(sizes)
    assert max(sizes) <= high // MIB
