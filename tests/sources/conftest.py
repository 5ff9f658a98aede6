"""Files of code that tests of the sources write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Write a file of Python code into a temporary folder."""

    def _write(code: str) -> Path:
        path = tmp_path / "net.py"
        path.write_text("import torch\nfrom torch import nn\n" + code, encoding="utf-8")
        return path

    return _write
