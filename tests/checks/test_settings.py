"""``[tool.graphmem]`` of a pyproject.toml."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from graphmem.checks import Growth, find_settings, parse_growth, read_settings
from graphmem.errors import UsageError

TABLE = """\
[tool.graphmem]
baseline = "memory"
allowed-growth = "1%"

[tool.graphmem.models.net]
subject = "net.py:net"
batch = 32
budget = "12GiB"
device = ["T4", "L4"]

[tool.graphmem.models.other]
subject = "other.onnx"
dim = {batch = 8}
allowed-growth = "10MiB"
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "pyproject.toml"
    path.write_text(text)
    return path


def test_a_model_is_checked_on_each_of_its_gpus(tmp_path: Path) -> None:
    settings = read_settings(_write(tmp_path, TABLE))
    assert [model.name for model in settings.models] == ["net@T4", "net@L4", "other"]
    first = settings.models[0]
    assert first.limits.budget == 12 << 30
    assert first.limits.device == "T4"
    assert first.options == {"batch": 32, "device": "T4"}
    assert settings.baseline == tmp_path / "memory"


def test_a_model_says_more_than_the_table_above_it(tmp_path: Path) -> None:
    settings = read_settings(_write(tmp_path, TABLE))
    growths = [model.limits.growth for model in settings.models]
    assert growths[0] == Growth("1%", Fraction(1, 100), 0)
    assert growths[2] == Growth("10MiB", None, 10 << 20)


def test_a_model_knows_its_line(tmp_path: Path) -> None:
    lines = TABLE.splitlines()
    for model in read_settings(_write(tmp_path, TABLE)).models:
        assert lines[model.line - 1].startswith(f"[tool.graphmem.models.{model.name[:3]}")


def test_the_file_is_found_from_a_folder_below_it(tmp_path: Path) -> None:
    path = _write(tmp_path, TABLE)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (below / "pyproject.toml").write_text("[project]\nname = 'x'\n")  # has no such table
    assert find_settings(below) == path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.graphmem", "can't be read as TOML"),
        ("[tool.graphmem]\n", "no models; add a table"),
        ("[tool.graphmem]\nbaselin = 'x'\n", "'baselin' is not one of baseline, budget"),
        ("[tool]\ngraphmem = 3\n", "graphmem: expected a table, found 3"),
        ("[tool.graphmem]\nmodels = []\n", "models: expected a table, found []"),
        ("[tool.graphmem.models.net]\nbatch = 3\n", "[tool.graphmem.models.net]: subject is miss"),
        ("[tool.graphmem.models.net]\nsubject = 3\n", "subject: expected a text, found 3"),
        ("[tool.graphmem.models.net]\nsubject = 'x'\nbudget = 'much'\n", "net] budget: 'much' is"),
        (
            "[tool.graphmem.models.net]\nsubject = 'x'\ndevice = []\n",
            "device: expected the name of",
        ),
        (
            "[tool.graphmem.models.net]\nsubject = 'x'\nallowed-growth = 'some'\n",
            "allowed-growth: 'some' is neither a share such as 2% nor a size",
        ),
    ],
)
def test_a_mistake_names_the_file_the_key_and_what_is_expected(
    tmp_path: Path, text: str, message: str
) -> None:
    path = _write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_settings(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "before", "allowed"),
    [("1%", 1000, 10), ("0.5%", 1000, 5), ("0%", 1000, 0), ("1KiB", 10, 1024), ("7", 10, 7)],
)
def test_growth_is_a_share_or_bytes(text: str, before: int, allowed: int) -> None:
    assert parse_growth(text, "x").allowed(before) == allowed
