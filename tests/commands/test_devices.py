"""graphmem devices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphmem.cli import main
from graphmem.devices import GPUS
from graphmem.errors import ExitCode


def test_the_table_has_every_gpu_in_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == ExitCode.OK

    header, _, *lines = capsys.readouterr().out.split("\n")
    assert header.split() == ["name", "kind", "architecture", "capacity", "context"]
    rows = lines[: lines.index("")]
    assert len(rows) == len(GPUS)
    assert all(row.startswith(gpu.name) for row, gpu in zip(rows, GPUS, strict=True))
    assert max(map(len, (header, *lines))) <= 80


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("t4", "T4 data centre Turing 14.74 GiB 114 to 154 MiB"),
        ("v100-32gb", "V100-32GB data centre Volta 31.73 GiB 368 MiB"),
        ("rtx a6000", "RTX A6000 workstation Ampere 47.54 GiB 256 to 315 MiB *"),
    ],
)
def test_one_gpu_can_be_asked_for(name: str, row: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", name]) == ExitCode.OK
    assert " ".join(capsys.readouterr().out.split("\n")[2].split()) == row


def test_the_json_says_where_each_number_is_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--format", "json"]) == ExitCode.OK

    gpus = {gpu["name"]: gpu for gpu in json.loads(capsys.readouterr().out)["devices"]}
    assert len(gpus) == len(GPUS)
    assert gpus["A100-PCIe-80GB"] == {
        "name": "A100-PCIe-80GB",
        "full_name": "NVIDIA A100 80GB PCIe",
        "aliases": ["A100-PCIe"],
        "kind": "data centre",
        "architecture": "Ampere",
        "arch": "sm_80",
        "capacity_bytes": 85_094_825_984,
        "capacity_error_bytes": 0,
        "capacity_source": "device properties",
        "context_bytes": {"low": 536_870_912, "high": 556_793_856},  # 512 and 531 MiB
        "context_source": "measured",
        "multiprocessors": 108,
        "l2_cache_bytes": 41_943_040,  # 40 MiB
        "sm_clock_khz": 1_410_000,
        "memory_clock_khz": 1_512_000,
    }


def test_the_suffix_of_a_file_decides(tmp_path: Path) -> None:
    file = tmp_path / "gpus.json"
    assert main(["devices", "-o", str(file)]) == ExitCode.OK
    assert len(json.loads(file.read_text("utf-8"))["devices"]) == len(GPUS)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rtx 4091"], "device 'rtx 4091' is not a known GPU; did you mean RTX 4090"),
        (["A100"], "device 'A100' may be any of A100-40GB, A100-80GB: name one of them"),
        (["--format", "markdown"], "--format markdown: not one of table, json"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["devices", *arguments]) == ExitCode.UNUSABLE
    assert says in capsys.readouterr().err
