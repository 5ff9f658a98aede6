"""docs/adapters.md and docs/estimate.md, and the tools that write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphmem.cli import main
from graphmem.errors import ExitCode
from tools.adapters import RESNET, RUNS

DOCS = Path(__file__).parents[2] / "docs"
LEDGER = "--params 7e9 --precision fp16 --optimizer adam --batch 4 --seq 2048"


def test_the_page_of_adapters_has_every_run() -> None:
    text = (DOCS / "adapters.md").read_text("utf-8")
    assert [name for name in (*RUNS, *RESNET) if f"\n| {name} |" not in text] == []


def test_a_published_resnet_is_simulated_as_it_was_measured() -> None:
    rows = (DOCS / "adapters.md").read_text("utf-8").rsplit("|--:|\n", 1)[1].splitlines()
    _, simulated, measured = (cell.strip() for cell in rows[2].strip("|").split("|")[-3:])
    assert simulated == measured == "2,618.32"


def test_the_page_of_the_textbook_shows_what_is_printed_now(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = f"estimate {LEDGER} --hidden 4096 --layers 32"
    assert main(line.split()) == ExitCode.OK
    text = (DOCS / "estimate.md").read_text("utf-8")
    assert f"graphmem {line}\n" in text
    assert capsys.readouterr().out.rstrip("\n") in text
