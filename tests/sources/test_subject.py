"""What a SUBJECT may be, and what is said of texts that name none."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphmem.errors import ModelLoadError
from tests.sources.subjects import refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model.onnx", "model.onnx: no such file"),
        ("resnet50", "is no subject; write timm:NAME"),
        ("", "is no subject"),
        ("tim:resnet50", "'tim' is neither a scheme nor a module; did you mean 'timm'?"),
        ("torchvison:resnet18", "did you mean 'torchvision'?"),
        ("timm:", "name the model after the colon, as timm:NAME"),
        ("weights.safetensors", "weights alone are no model"),
        ("config.json", "write hf:config.json"),
        ("no/such/file.py:build", "no/such/file.py: no such file"),
        ("no_such_package.models:build", "there is no module 'no_such_package'"),
        ("graphmem.no_such:build", "there is no module 'graphmem.no_such'"),
        ("program.pt2", "program.pt2: no such file"),
    ],
)
def test_a_text_that_names_nothing_is_refused_in_one_line(text: str, message: str) -> None:
    refused(ModelLoadError, message, text)


def test_a_file_without_a_factory_says_which_there_are(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text("def _helper(): ...\ndef build(): ...\n", encoding="utf-8")
    refused(ModelLoadError, f"name the factory after a colon, as {path}:build", path)
    refused(ModelLoadError, "as", f"{path}:")


def test_a_misspelt_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "model.py").touch()
    refused(ModelLoadError, f"did you mean '{tmp_path}/model.py'?", f"{tmp_path}/modle.py:build")
