"""Texts that are compared with a file; ``GRAPHMEM_OVERWRITE_GOLDEN=1`` writes the files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_FOLDER = Path(__file__).parent / "golden"


def check_golden(name: str, text: str) -> None:
    """Fail unless the text is that of a golden file, or make it so where that is asked for."""
    path = _FOLDER / name
    if os.environ.get("GRAPHMEM_OVERWRITE_GOLDEN") == "1":
        path.write_text(text, encoding="utf-8")
    if not path.exists():
        pytest.fail(f"{path} is missing: run the tests with GRAPHMEM_OVERWRITE_GOLDEN=1")
    assert text == path.read_text(encoding="utf-8")
