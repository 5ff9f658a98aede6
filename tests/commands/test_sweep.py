"""graphmem sweep, through ``main``."""

from __future__ import annotations

import argparse
import json
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import pytest

from graphmem.cli import main
from graphmem.commands import sweep
from graphmem.commands.progress import Progress
from graphmem.errors import ExitCode

SUBJECT = "tests/sweeps/factories.py:plain"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", [8]),
        ("1,2,4", [1, 2, 4]),
        ("1:4", [1, 2, 3, 4]),
        ("8:32:8", [8, 16, 24, 32]),
        ("1,2,8:24:8,2", [1, 2, 8, 16, 24]),
        ("5:5", [5]),
    ],
)
def test_sizes_are_lists_and_ranges(text: str, expected: list[int]) -> None:
    assert sweep.sizes(text) == expected


@pytest.mark.parametrize("text", ["", "0", "4:1", "1:2:3:4", "a", "1:", "1:9999999", "1.5"])
def test_what_is_no_list_of_sizes_is_told(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        sweep.sizes(text)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of answers, so that the tests after the first start no process."""
    return tmp_path_factory.mktemp("kept")


def _swept(kept: Path, *arguments: str) -> ExitCode:
    line = ["sweep", SUBJECT, "--batch", "1:6", "--device", "T4,L4", "--cache", str(kept)]
    return ExitCode(main([*line, *arguments]))


def test_a_table_and_a_map_in_eighty_columns(
    kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _swept(kept) == ExitCode.OK
    printed = capsys.readouterr()
    assert printed.err == ""  # no terminal, no progress bar
    lines = printed.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == [
        "GPU",
        "batch",
        "allocated",
        "reserved",
        "fits",
        "free",
        "peak",
        "in",
    ]
    assert [line.split()[:2] for line in lines[1:13]] == [
        [device, str(batch)] for device in ("T4", "L4") for batch in range(1, 7)
    ]
    assert lines[15:17] == ["T4     ░░░░░░░░░░░░░░░░░░", "L4     ░░░░░░░░░░░░░░░░░░"]


def test_json_has_every_case(kept: Path, tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    assert _swept(kept, "-o", str(path)) == ExitCode.OK
    written: dict[str, Any] = json.loads(path.read_text())
    assert written["schema"] == "graphmem.sweep/1"
    assert [(c["device"], c["batch"]) for c in written["cases"]][:3] == [
        ("T4", 1),
        ("T4", 2),
        ("T4", 3),
    ]
    assert all(case["answer"]["fits"] is True for case in written["cases"])


def test_markdown_has_a_table_and_the_map(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _swept(kept, "--format", "markdown") == ExitCode.OK
    text = capsys.readouterr().out
    assert "| GPU   |   batch |" in text
    assert text.count("```") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--batch", "0"], "'0' is not a whole number"),
        (["--precision", "bf17"], "did you mean 'bf16'"),
        (["--device", "L5"], "L5"),
        (["--headroom", "1GiB"], "of which GPU's memory"),
        (["--compile"], "--compile is for graphmem analyze"),
        (["-o", "x.png"], "the suffix must be one of"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", SUBJECT, *arguments]) == ExitCode.UNUSABLE
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_where_every_case_fails_so_does_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["sweep", "tests/sweeps/factories.py:nothing", "--batch", "1,2", "--no-cache"]
    assert main(line) == ExitCode.UNUSABLE
    assert "it has no 'nothing'" in capsys.readouterr().err


def test_the_progress_bar_is_for_terminals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for is_terminal in (False, True):
        monkeypatch.setattr("sys.stderr.isatty", lambda shown=is_terminal: shown)
        with Progress(4, "cases") as progress:
            progress.step("batch 1")
        error = capsys.readouterr().err
        assert ("1/4 cases" in error) is is_terminal
        assert error.endswith("\r\x1b[K") is is_terminal


def test_what_is_switched_off_is_an_option_of_every_case() -> None:
    """As ``graphmem analyze`` takes it: gradients are filled, foreach is not used."""
    parser = argparse.ArgumentParser()
    command = sweep.Sweep()
    command.prepare_parser(parser)
    arguments = parser.parse_args(["m.py:f", "--zero-grad", "zero", "--no-foreach"])
    (case,) = sweep._cases(arguments)
    assert dict(case.options) == {"set_to_none": False, "foreach": False}
