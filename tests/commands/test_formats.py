"""The formats of ``graphmem analyze``, and where they go."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from graphmem.cli import main
from graphmem.commands.formats import FORMATS
from graphmem.errors import ExitCode

SUBJECT = "tests/sweeps/factories.py:plain"


@pytest.mark.parametrize("name", FORMATS)
def test_the_suffix_decides_and_the_name_says_the_same(
    name: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / f"out{FORMATS[name].suffix}"
    assert main(["analyze", SUBJECT, "-o", str(path)]) == ExitCode.OK
    assert capfdbinary.readouterr().out == b""
    assert main(["analyze", SUBJECT, "--format", name]) == ExitCode.OK
    assert capfdbinary.readouterr().out == path.read_bytes()


def test_json_and_a_trace_in_json_are_told_apart_by_the_whole_suffix(tmp_path: Path) -> None:
    main(["analyze", SUBJECT, "-o", str(tmp_path / "a.trace.json")])
    main(["analyze", SUBJECT, "-o", str(tmp_path / "a.json")])
    assert "traceEvents" in json.loads((tmp_path / "a.trace.json").read_text())
    assert json.loads((tmp_path / "a.json").read_text())["schema"] == "graphmem.report/1"


@pytest.mark.parametrize("suffix", [".txt", ".html", ".svg", ".pickle"])
def test_a_result_that_cannot_be_written_is_printed(
    suffix: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "no" / f"out{suffix}"
    assert main(["analyze", SUBJECT, "-o", str(path)]) == ExitCode.UNUSABLE
    printed = capfdbinary.readouterr()
    assert printed.err.decode() == (
        f"graphmem: -o {path}: No such file or directory; the result was printed instead\n"
    )
    good = tmp_path / f"out{suffix}"
    assert main(["analyze", SUBJECT, "-o", str(good)]) == ExitCode.OK
    if suffix == ".pickle":
        assert pickle.loads(printed.out) == pickle.loads(good.read_bytes())
    else:
        assert printed.out == good.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "htm"], "did you mean 'html'?"),
        (["-o", "x.htm"], "did you mean '.html'?"),
        (["--format", "html", "--timeline"], "--timeline is part of the JSON report"),
        (["--format", "svg", "--compare", "x.pickle"], "--compare: svg has no place for it"),
        (["--format", "snapshot", "--target", "cpu"], "use target cuda"),
    ],
)
def test_a_mistake_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["analyze", SUBJECT, *arguments]) == ExitCode.UNUSABLE
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1
