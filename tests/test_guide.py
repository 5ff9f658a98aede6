"""The guide: every command in it runs, and its outputs are what the commands print."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from graphmem.cli import main
from graphmem.errors import ExitCode
from graphmem.targets.cuda.cudnn import library
from tools import guide

PAGES = sorted(guide.GUIDE.glob("*.md"))
ROOT = guide.ROOT


def _text(page: Path) -> str:
    return page.read_text("utf-8")


def _asks_cudnn_9_24() -> bool:
    found = library.load()
    return isinstance(found, library.Library) and found.version == 92400


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_outputs_of_a_page_are_what_its_commands_print(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    if "cuDNN 9.24.0" in _text(page) and not _asks_cudnn_9_24():
        pytest.skip("the page was made with cuDNN 9.24.0, which is not installed")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    assert guide.filled(_text(page)) == _text(page), "run tools/guide.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_runs(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    pytest.importorskip("transformers")
    shutil.copytree(ROOT / "models", tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    shown = re.findall(r"<!-- output \d+: graphmem (.+?) -->", _text(page))
    for command in guide.commands(_text(page)):
        if command in shown:  # the other test runs it
            continue
        assert main(shlex.split(command)) == ExitCode.OK, command
    capfdbinary.readouterr()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", _text(page)):
        assert (page.parent / target).exists(), target
