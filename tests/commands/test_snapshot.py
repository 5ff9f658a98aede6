"""graphmem snapshot, on the measured files."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from graphmem.cli import main
from graphmem.errors import ExitCode


def test_a_replay_says_that_everything_is_the_same(
    truth: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = truth / "snapshots" / "toy-attention-cold-start.pickle"

    assert main(["snapshot", str(file)]) == ExitCode.OK

    out = capsys.readouterr().out
    assert "every decision and address is the same" in out
    assert "3,249,144,832" in out
    assert "3,781,165,056" in out


def test_the_json_has_the_names_of_the_design(
    truth: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = truth / "snapshots" / "toy-attention-cold-start.pickle"
    options = ["--format", "json", "--alloc-conf", "expandable_segments:True"]

    assert main(["snapshot", str(file), *options]) == ExitCode.OK

    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert device["recorded"] == {
        "allocated_bytes": 3_249_144_832,
        "reserved_bytes": 3_781_165_056,
    }
    assert device["replayed"] == device["recorded"]
    assert device["mismatches"] == []
    assert device["events"] == 97
    other = device["under_other_settings"]
    # Expandable segments grow by pages of 20 MiB, and split without unsplit slack.
    assert other["allocated_bytes"] <= 3_249_144_832
    assert other["reserved_bytes"] % (20 * 1024**2) % (2 * 1024**2) == 0
    assert other["reserved_bytes"] != 3_781_165_056


def test_the_json_has_who_holds_the_peak_and_how_fragmented_it_is(
    truth: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = truth / "snapshots" / "tinyllama-int8-lora-train.pickle"

    assert main(["snapshot", str(file), "--format", "json"]) == ExitCode.OK

    (device,) = json.loads(capsys.readouterr().out)["devices"]
    allocated = device["peak"]["allocated_bytes"]
    assert allocated == device["replayed"]["allocated_bytes"]
    assert sum(site["bytes"] for site in device["call_sites"]) == allocated
    assert len(device["holders"]) == 100
    sizes = [holder["bytes"] for holder in device["holders"]]
    assert sizes == sorted(sizes, reverse=True)
    total = device["fragmentation"]["total"]
    assert total["allocated_bytes"] == allocated
    assert total["reserved_bytes"] == sum(
        total[f"{name}_bytes"]
        for name in ("allocated", "pending", "free_in_split_segments", "free_segments")
    )
    assert total["slack_bytes"] == allocated - total["requested_bytes"]


def test_a_file_without_segments_shows_its_holders(
    truth: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = truth / "snapshots" / "resnet18-b8-train-fp32-sgdm.pickle"

    assert main(["snapshot", str(file), "--holders", "3"]) == ExitCode.OK

    out = capsys.readouterr().out
    assert "303,644,672" in out
    assert "No segments were recorded: nothing to replay." in out
    assert "conv.py:459 (_conv_forward)" in out
    assert "Reserved bytes" not in out


@pytest.mark.parametrize("name", ["gnn-expandable-segments-oom", "lm423m-ctx128-train-fp32"])
def test_a_table_fits_the_terminal(
    name: str, truth: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = truth / "snapshots" / f"{name}.pickle"

    assert main(["snapshot", str(file)]) == ExitCode.OK

    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if str(file) not in line) <= 80


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "can't be read as a memory snapshot: the file is empty"),
        (b"\x80\x04", "the file is cut short"),
        (pickle.dumps({"segments": [], "device_traces": []})[:-20], "the file is cut short"),
        (pickle.dumps(Path("/")), "makes more than plain containers"),
        (pickle.dumps([1, 2, 3]), "expected a dictionary with 'segments', not a list"),
        (pickle.dumps({"segments": [], "device_traces": [[]]}), "no events were recorded; call"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(
    content: bytes, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bad.pickle"
    file.write_bytes(content)

    assert main(["snapshot", str(file)]) == ExitCode.UNUSABLE

    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.strip().splitlines()
    assert says in line


def test_a_missing_file_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshot", "no/such.pickle"]) == ExitCode.UNUSABLE
    assert "no/such.pickle" in capsys.readouterr().err


def test_a_file_of_1_gb_is_refused_unread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "large.pickle"
    with file.open("wb") as handle:
        handle.truncate(10**9)  # sparse

    assert main(["snapshot", str(file)]) == ExitCode.UNUSABLE

    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line == (
        f"graphmem: {file}: 1000000000 bytes, and no more than 536870912 are read; record fewer "
        "events (_record_memory_history(max_entries=...)) or shorter stacks"
    )


def test_wrong_settings_are_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshot", "x.pickle", "--alloc-conf", "expandable_segment:True"]) == 2
    assert "expandable_segments" in capsys.readouterr().err


WRONG_SETTINGS = (
    "max_split_size_mb:19",
    "max_non_split_rounding_mb:19",
    "large_segment_size_mb:10",
    "garbage_collection_threshold:1.0",
    "roundup_power2_divisions:3",
    "roundup_power2_divisions:[3:4]",
)

_ASK_TORCH = """
import sys, torch
for settings in sys.argv[1:]:
    try:
        torch._C._accelerator_setAllocatorSettings(settings)
        print()
    except ValueError as error:
        print(str(error).splitlines()[0].strip())
"""


def test_wrong_settings_have_the_message_of_the_installed_torch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = subprocess.run(  # the settings are those of the whole process
        [sys.executable, "-c", _ASK_TORCH, *WRONG_SETTINGS],
        capture_output=True,
        text=True,
        check=True,
    )
    messages = asked.stdout.splitlines()
    assert all(messages)
    assert len(messages) == len(WRONG_SETTINGS)
    for settings, message in zip(WRONG_SETTINGS, messages, strict=True):
        assert main(["snapshot", "x.pickle", "--alloc-conf", settings]) == ExitCode.UNUSABLE
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert message in line
