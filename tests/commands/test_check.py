"""graphmem check, through ``main``."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from graphmem.cli import main
from graphmem.errors import ExitCode

MODEL = """\
from torch import nn, zeros

def net(width={width}):
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 64)), (zeros(128, 64),)
"""
TABLE = """\
[tool.graphmem]
baseline = "memory"
allowed-growth = "1%"

[tool.graphmem.models.net]
subject = "net.py:net"
budget = "{budget}"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").write_text(TABLE.format(budget="100MiB"))
    (tmp_path / "net.py").write_text(MODEL.format(width=4096))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_baseline_is_made_and_held(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == ExitCode.FAILED
    assert "net: may grow by 1%, but the baseline has no report of it" in capsys.readouterr().out
    assert main(["check", "--update-baseline"]) == ExitCode.OK
    assert "the baseline is in memory" in capsys.readouterr().err
    assert main(["check"]) == ExitCode.OK
    assert "1 model within limits" in capsys.readouterr().out


def test_growth_over_the_baseline_fails_with_the_reason(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["check", "--update-baseline"])
    (project / "net.py").write_text(MODEL.format(width=4400))
    capsys.readouterr()
    assert main(["check"]) == ExitCode.FAILED
    printed = capsys.readouterr().out
    assert "grown" in printed
    assert "and 1% is allowed" in printed
    assert main(["check", "--allowed-growth", "20%"]) == ExitCode.OK


def test_a_budget_is_what_a_search_for_the_largest_batch_goes_by(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["check", "--update-baseline"])
    capsys.readouterr()
    assert main(["check", "--format", "json"]) == ExitCode.OK
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "graphmem.check/1"
    (net,) = found["models"]
    least = (100 << 20) - net["spare_bytes"]
    assert main(["check", "--budget", str(least)]) == ExitCode.OK
    assert main(["check", "--budget", str(least - 1)]) == ExitCode.FAILED
    assert "over a budget of" in capsys.readouterr().out


def test_one_that_cannot_be_analyzed_does_not_stop_the_others(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (project / "pyproject.toml").read_text()
    bad = "[tool.graphmem.models.bad]\nsubject = 'no.py:net'\n"
    (project / "pyproject.toml").write_text(text + bad)
    arguments = ["check", "--update-baseline", "--format", "json"]
    assert main(arguments) == ExitCode.UNUSABLE
    net, bad_one = json.loads(capsys.readouterr().out)["models"]
    assert net["ok"]
    assert bad_one["failures"][0]["kind"] == "not-analyzed"
    assert main(["check", "--only", "net"]) == ExitCode.OK


def test_continuous_integration_gets_junit_and_sarif(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "pyproject.toml").write_text(TABLE.format(budget="1MiB"))
    main(["check", "--junit", "junit.xml", "--sarif", "check.sarif"])
    suite = ElementTree.parse(project / "junit.xml").getroot()[0]
    assert suite.attrib == {"name": "graphmem", "tests": "1", "failures": "1", "errors": "0"}
    failures = suite[0].findall("failure")
    assert [failure.get("type") for failure in failures] == ["over-budget", "no-baseline"]
    log = json.loads((project / "check.sarif").read_text())
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["over-budget", "no-baseline"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        where = result["locations"][0]["physicalLocation"]
        assert where["artifactLocation"]["uri"] == "pyproject.toml"
        assert where["region"]["startLine"] == 5


def test_paths_in_the_file_start_from_its_folder(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["check", "--update-baseline"])
    below = project / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert main(["check", "-o", "out.md"]) == ExitCode.OK
    assert (below / "out.md").read_text().startswith("**1 model within limits**")


def test_a_subject_of_the_command_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "net.py:net", "--budget", "100MiB"]) == ExitCode.OK
    assert main(["check", "net.py:net", "--device", "T4"]) == ExitCode.OK
    assert main(["check", "net.py:net", "--budget", "1MiB"]) == ExitCode.FAILED
    assert main(["analyze", "net.py:net", "-o", "net.json"]) == ExitCode.OK
    assert main(["check", "net.json", "--budget", "100MiB"]) == ExitCode.OK
    assert main(["check", "net.json", "--budget", "1MiB"]) == ExitCode.FAILED


def test_the_table_fits_eighty_columns(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = "net-with-a-name-that-is-longer-than-any-table-can-show-it"
    text = TABLE.format(budget="1MiB").replace("models.net", f"models.{long}")
    (project / "pyproject.toml").write_text(text)
    main(["check"])
    table = capsys.readouterr().out.splitlines()[:4]
    assert max(map(len, table)) <= 80
    assert "over budget +1" in table[2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["net.py:net"], "check for what? add --budget SIZE, --device GPU or --baseline DIR"),
        (["net.py:net", "--allowed-growth", "1%", "--budget", "1GiB"], "over what? add --baseline"),
        (["net.py:net", "--only", "net", "--budget", "1GiB"], "leave SUBJECT out"),
        (["--batch", "3"], "--batch: of which SUBJECT?"),
        (["--only", "nte"], "did you mean 'net'?"),
        (["--budget", "much"], "--budget: 'much' is not a size"),
        (["--config", "no.toml"], "no.toml: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["check", *arguments]) == ExitCode.UNUSABLE
    printed = capsys.readouterr()
    assert printed.out == ""
    assert message in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("batchs = 3", "'batchs' is not an option of graphmem analyze; did you mean 'batch'?"),
        ("batch = true", "argument --batch"),
        ("strict = 3", "strict: expected true or false, found 3"),
        ("batch = [1]", "batch: expected a text or a number, found [1]"),
    ],
)
def test_a_mistake_in_a_models_table_names_the_key(
    project: Path, capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    path = project / "pyproject.toml"
    path.write_text(path.read_text() + line)
    assert main(["check"]) == ExitCode.UNUSABLE
    printed = capsys.readouterr().err
    assert printed.startswith("graphmem: pyproject.toml: [tool.graphmem.models.net]")
    assert message.removeprefix("argument ") in printed
    assert printed.count("\n") == 1
