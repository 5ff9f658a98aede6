"""The GitHub action's scripts, on a repository of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.action.comment import MARK, Part, fitted

ACTION = Path(__file__).resolve().parents[2] / "tools" / "action"
TABLE = """\
[tool.graphmem.models.net]
subject = "net.py:net"

[tool.graphmem.models.same]
subject = "net.py:same"
"""
MODEL = """\
from torch import nn, zeros

def net():
    return nn.Sequential(nn.Linear(64, {width}), nn.ReLU(), nn.Linear({width}, 8)), (zeros(8, 64),)

def same():
    return nn.Linear(64, 64), (zeros(8, 64),)
"""


def _git(folder: Path, *arguments: str) -> str:
    names = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *names, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    _git(tmp_path, "init", "--quiet")
    (tmp_path / "pyproject.toml").write_text(TABLE)
    (tmp_path / "net.py").write_text(MODEL.format(width=1024))
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "--quiet", "-m", "before")
    return tmp_path


def _diff(folder: Path, base: str) -> str:
    environment = {**os.environ, "PYTHON": sys.executable}
    command = ["bash", str(ACTION / "diff.sh"), base, "pyproject.toml"]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_comment_says_what_each_model_takes_more(repository: Path) -> None:
    base = _git(repository, "rev-parse", "HEAD")
    (repository / "net.py").write_text(MODEL.format(width=4096))
    text = _diff(repository, base)
    lines = text.splitlines()
    assert lines[0] == MARK
    assert lines[1] == "### GPU memory: 1 of 2 models changed"
    models = [line for line in lines if line.startswith("- `")]
    assert [line.split(":")[0] for line in models] == ["- `net`", "- `same`"]
    assert "grows by" in models[0]
    assert text.count("<details><summary>Details") == 2
    assert _git(repository, "worktree", "list").count("\n") == 0  # it is cleaned up


def test_a_model_that_is_new_or_gone_is_told(repository: Path) -> None:
    base = _git(repository, "rev-parse", "HEAD")
    (repository / "pyproject.toml").write_text(TABLE.replace("models.same", "models.other"))
    text = _diff(repository, base)
    assert "- `other`: new, peak" in text
    assert "- `same`: gone" in text


def test_a_comment_keeps_the_details_of_the_largest_changes() -> None:
    parts = [Part(f"- {i}", "x" * 20_000, 10 - i) for i in range(5)]
    text = fitted(MARK, parts)
    assert len(text.encode()) <= 60_000
    assert text.count("<details>") == 2
    assert text.index("<details>") > text.index("- 0")
    assert "- 4" in text


def test_the_action_names_files_that_are_there() -> None:
    text = (ACTION / "action.yml").read_text()
    for name in ("diff.sh", "comment.sh"):
        assert f"$GITHUB_ACTION_PATH/{name}" in text
        assert (ACTION / name).is_file()
