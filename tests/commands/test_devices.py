"""graphmem devices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphmem.cli import main
from graphmem.devices import GPUS, find
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


# -- graphmem analyze --device

GOOD = ["analyze", "tests/commands/factories.py:good"]


def test_analyze_on_a_gpu_says_whether_it_fits(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*GOOD, "--device", "tesla t4", "--headroom", "1.5GiB", "--format", "json"]
    assert main(arguments) == ExitCode.OK

    report = json.loads(capsys.readouterr().out)
    t4 = find("T4")
    low, high = t4.context_bytes
    assert report["device"] == {
        "name": "T4",
        "arch": "sm_75",
        "capacity_bytes": t4.capacity_bytes,
    }
    assert (report["created_from"]["device"], report["created_from"]["headroom"]) == (
        "T4",
        1_610_612_736,  # 1.5 * 1024^3
    )
    reserved = report["peak"]["reserved_bytes"]
    assert report["peak"]["device_bytes"] == {"low": reserved + low, "high": reserved + high}
    assert report["fits"] == {
        "T4": {
            "fits": True,
            "headroom_bytes": t4.capacity_bytes - high - reserved - 1_610_612_736,
            "out_of_memory_at": None,
            "notes": [],
        }
    }


def test_a_run_that_does_not_fit_is_told_in_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # 4 Gi rows of 8 floats: 128 GiB of input alone.
    assert main([*GOOD, "--input", f"{2**32}x8", "--device", "t4"]) == ExitCode.OK
    out = " ".join(capsys.readouterr().out.split())
    assert "Device T4 (sm_75) of 14.74 GiB" in out
    assert "Fits T4: no, " in out
    assert "too much, out of memory before the first operation, where (top level) asks for" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--device", "rtx4091"], "device 'rtx4091' is not a known GPU; did you mean RTX 4090"),
        (["--device", "V100"], "device 'V100' may be any of V100-16GB, V100-32GB"),
        (["--headroom", "2GiB"], "--headroom: of which GPU's memory? add --device"),
        (
            ["--device", "T4", "--headroom", "2G"],
            "headroom: '2G' is not a size such as 2GiB, 500MB or 1048576",
        ),
        (["--device", "T4", "--target", "cpu"], "device T4: a GPU does not go with target cpu"),
    ],
)
def test_a_mistake_with_a_gpu_is_one_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*GOOD, *arguments]) == ExitCode.UNUSABLE
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1
