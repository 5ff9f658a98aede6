"""graphmem diff, through ``main``."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

import graphmem
from graphmem.cli import main
from graphmem.diffs import json_schema
from graphmem.errors import ExitCode
from graphmem.render import as_json
from graphmem.report import Report
from tests.diffs.reports import report, rows, stack
from tests.render.samples import training_report

GOOD = "tests/commands/factories.py:good"
HEAVY = {"torch", "onnx", "onnxruntime", "transformers", "numpy", "tabulate", "jsonschema"}
BASE = report(rows(*stack("layers", 2), "head Linear 50"))
HEAD = report(rows(*stack("layers", 2, width=150), "head Linear 50"))


def written(path: Path, of: Report) -> str:
    path.write_text(as_json(of), encoding="utf-8")
    return str(path)


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    return written(tmp_path / "base.json", BASE), written(tmp_path / "head.json", HEAD)


def test_two_reports_are_compared(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", *files]) == ExitCode.OK
    out, err = capsys.readouterr()
    assert out.startswith("Peak grows by ")
    assert "head.json" in out
    assert err == ""


def test_the_json_is_that_of_its_schema(
    files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", *files, "--format", "json"]) == ExitCode.OK
    value = json.loads(capsys.readouterr().out)
    jsonschema.validate(value, json_schema())
    assert (value["base"]["name"], value["head"]["name"]) == files
    assert value == graphmem.diff(*files).to_dict()


@pytest.mark.parametrize(
    ("suffix", "begins"), [(".md", "**Peak grows by "), (".txt", "Peak grows"), (".json", "{\n")]
)
def test_the_suffix_of_the_file_decides(
    suffix: str, begins: str, files: tuple[str, str], tmp_path: Path
) -> None:
    out = tmp_path / f"diff{suffix}"
    assert main(["diff", *files, "-o", str(out)]) == ExitCode.OK
    assert out.read_text("utf-8").startswith(begins)


def test_a_report_is_compared_with_a_subject_that_is_analyzed_with_the_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = str(tmp_path / "base.json")
    assert main(["analyze", GOOD, "-o", base]) == ExitCode.OK
    assert main(["diff", base, GOOD, "--optimizer", "sgd", "--format", "json"]) == ExitCode.OK
    value = json.loads(capsys.readouterr().out)
    assert value["head"]["name"] == GOOD
    # Two states of 8*16 + 16 + 16*4 + 4 = 212 parameters, 4 B each, in blocks of 512 B.
    assert value["breakdown"]["optimizer_states"]["after"] == 0
    (option,) = value["differences"]
    assert (option["what"], option["before"], option["after"]) == ("optimizer", "adamw", "sgd")


def test_two_subjects_are_analyzed_alike(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", GOOD, GOOD, "--target", "cpu"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert out.startswith("Peak is unchanged at ")
    assert "No layer changed" in out


# -- what can't be used


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["diff", *arguments]) == ExitCode.UNUSABLE
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.strip().split("\n")
    return line.removeprefix("graphmem: ")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{}", "not a report of graphmem; graphmem analyze SUBJECT -o report.json makes a report"),
        ("[1, 2]", "not a report of graphmem"),
        ("{", "not JSON ("),
        ('{"schema": "graphmem.report/2"}', "a report of schema graphmem.report/2, and this"),
        ('{"schema": "graphmem.diff/1"}', "not a report of graphmem"),
        ('{"model_type": "gpt2"}', "not a report of graphmem"),
    ],
)
@pytest.mark.parametrize("is_base", [True, False])
def test_a_file_that_is_no_report_is_named(
    content: str,
    says: str,
    is_base: bool,
    files: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(content)
    given = (str(bad), files[1]) if is_base else (files[0], str(bad))
    assert refused(capsys, *given).startswith(f"{bad}: {says}")


def test_a_missing_file_is_named_before_anything_is_traced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "head.json"
    line = refused(capsys, "no/such.py:model", str(missing))
    assert line.startswith(f"{missing}: No such file or directory; graphmem analyze SUBJECT -o")


@pytest.mark.parametrize(
    "option", [["--batch", "8"], ["--device", "L4"], ["--no-foreach"], ["--target", "cpu"]]
)
def test_options_of_an_analysis_do_not_apply_to_two_reports(
    option: list[str], files: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    line = refused(capsys, *files, *option)
    assert line.startswith(f"{option[0].replace('no-', '')}: ")
    assert "are reports, which are read as they are" in line


def test_one_argument_is_too_few(capsys: pytest.CaptureFixture[str]) -> None:
    assert "HEAD" in refused(capsys, "base.json")


def test_a_file_that_can_t_be_written_is_named_and_the_diff_is_not_lost(
    files: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "no" / "diff.md")
    assert main(["diff", *files, "-o", out]) == ExitCode.UNUSABLE
    printed, error = capsys.readouterr()
    assert printed.startswith("**Peak grows by ")
    assert out in error


# -- it answers at once


def graphmem_run(cache: Path, *arguments: str) -> tuple[str, float]:
    """What a fresh process prints, and the seconds of computing that it took.

    The compiled files are kept in ``cache``, as Python does by default beside the sources.
    """
    code = (
        "import sys, graphmem.cli\n"
        f"code = graphmem.cli.main({list(arguments)!r})\n"
        "assert code == 0, code\n"
        f"print('loaded', *sorted({HEAVY!r} & sys.modules.keys()))"
    )
    root = Path(graphmem.__file__).resolve().parent.parent
    env = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        capture_output=True,
        text=True,
        env={**env, "PYTHONPYCACHEPREFIX": str(cache)},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("command", ["--help", "diff", "diff --format markdown"])
def test_it_loads_nothing_heavy_and_takes_less_than_four_tenths_of_a_second(
    command: str, tmp_path: Path
) -> None:
    large = training_report()
    head = replace(large, torch="2.14.0", peak=replace(large.peak, phase="forward"))
    given = [written(tmp_path / "a.json", large), written(tmp_path / "b.json", head)]
    name, *options = command.split()
    arguments = [name] if name == "--help" else [name, *given, *options]
    runs = [graphmem_run(tmp_path / "compiled", *arguments) for _ in range(4)]
    assert {out.split("\n")[-2] for out, _ in runs} == {"loaded"}
    # Its own computing: what else the machine does at the same time is not counted.
    assert min(seconds for _, seconds in runs) < 0.4
