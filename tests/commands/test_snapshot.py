"""graphmem snapshot, on the measured files."""

from __future__ import annotations

import json
import pickle
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


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "snapshot"),
        (b"\x80\x04", "snapshot"),
        (pickle.dumps(Path("/")), "snapshot"),  # carries a class
        (pickle.dumps([1, 2, 3]), "snapshot"),
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


def test_wrong_settings_are_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshot", "x.pickle", "--alloc-conf", "expandable_segment:True"]) == 2
    assert "expandable_segments" in capsys.readouterr().err
