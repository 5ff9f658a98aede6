"""The README's generated parts: each between its markers, and nothing else is touched."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools import readme

TEXT = """before
<!-- output: graphmem devices -->
old
<!-- /output -->
<!-- table: how exact -->
old
<!-- /table -->
between
<!-- table: the zoo -->
old
<!-- /table -->
after
"""

PAGE = """# Every model people have

| library | mode | cases | analyzed | failed | not runnable | share | median s | most s |
|---|---|--:|--:|--:|--:|--:|--:|--:|
| timm 1.0 | inference | 1,371 | 1,370 | 1 | 0 | 99.93% | 0.4 | 35.4 |
| timm 1.0 | training | 1,371 | 1,371 | 0 | 0 | 100.00% | 0.9 | 170.0 |
"""

TABLE = """<!-- table: the zoo -->
| library | models | inference | training |
|---|--:|--:|--:|
| timm 1.0 | 1,371 | 99.93% | 100.00% |
<!-- /table -->"""


def test_the_zoo_is_what_its_page_counts_and_the_rest_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "README.md").write_text(TEXT, "utf-8")
    (tmp_path / "zoo.md").write_text(PAGE, "utf-8")
    monkeypatch.setattr(readme, "README", tmp_path / "README.md")
    monkeypatch.setattr(readme, "ZOO", tmp_path / "zoo.md")
    readme.main(["--only", "zoo"])
    expected = TEXT.replace("<!-- table: the zoo -->\nold\n<!-- /table -->", TABLE)
    assert (tmp_path / "README.md").read_text("utf-8") == expected


def test_a_command_is_followed_by_what_it_prints() -> None:
    made = readme.filled(TEXT, ["outputs"])
    assert re.search(
        r"<!-- output: graphmem devices -->\n```text\n.*A100.*<!-- /output -->", made, re.S
    )
    assert made.count("old") == 2


def test_a_picture_is_made_where_its_command_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mlp.svg"
    command = f"graphmem analyze tests/sweeps/factories.py:plain -o {path}"
    made = readme.filled(f"<!-- picture: {command} -->\n<!-- /picture -->", ["pictures"])
    title = ElementTree.parse(path).findtext("{http://www.w3.org/2000/svg}title")
    assert made.splitlines()[1] == f"![{title}]({path})"


def test_the_readmes_picture_shows_the_readmes_peak() -> None:
    text = readme.README.read_text("utf-8")
    peaks = re.findall(r"!\[hf:models/gpt2.json: (.+?) at the peak\]", text)
    assert peaks == re.findall(r"```text\nPeak (.+?) allocated", text)


def test_the_readme_has_every_part() -> None:
    text = readme.README.read_text("utf-8")
    assert all(pattern.search(text) for pattern, _ in readme.PARTS.values())
