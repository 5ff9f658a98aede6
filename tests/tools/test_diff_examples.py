"""Tests of tools.diff_examples: the examples are what graphmem diff prints today."""

from __future__ import annotations

import importlib.util

import pytest

from graphmem.render.diff_markdown import MOST_BYTES
from tools.diff_examples import EXAMPLES, FOLDER, page


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_what_the_commands_print(name: str) -> None:
    if "resnet" in name and importlib.util.find_spec("torchvision") is None:
        pytest.skip("the extra vision is not installed")
    assert page(EXAMPLES[name]) == (FOLDER / f"{name}.md").read_text("utf-8")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_fits_a_comment(name: str) -> None:
    assert len((FOLDER / f"{name}.md").read_bytes()) < MOST_BYTES
