"""``program.pt2``: programs that torch.export saved."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from graphmem.errors import InputError, ModelLoadError
from tests.sources.subjects import load, refused


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        z: Tensor = self.linear(x)
        return z + y


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program with a batch of any size, saved."""
    return _save(tmp_path / "dynamic.pt2", torch.export.Dim("batch", min=2, max=64))


def _save(path: Path, batch: object) -> Path:
    shapes = None if batch is None else {"x": {0: batch}, "y": {0: batch}}
    inputs = {"y": torch.zeros(3, 4)}
    saved = torch.export.export(_Net(), (torch.ones(3, 8),), inputs, dynamic_shapes=shapes)
    torch.export.save(saved, path)
    return path


def test_a_program_comes_with_its_weights_and_example_inputs(program: Path) -> None:
    subject = load(program)
    assert (subject.kind, subject.real, subject.rebuild_really) == ("exported", True, None)
    assert sum(p.numel() for p in subject.model.parameters()) == 36
    assert subject.args[0].tolist() == [[1.0] * 8] * 3
    assert subject.model(*subject.args, **subject.kwargs).shape == (3, 4)


def test_a_dynamic_batch_can_be_changed(program: Path) -> None:
    subject = load(program, batch=6)
    assert subject.model(*subject.args, **subject.kwargs).shape == (6, 4)


def test_a_static_batch_cant_be_changed(tmp_path: Path) -> None:
    static = _save(tmp_path / "static.pt2", None)
    assert load(static, batch=3).args[0].shape == (3, 8)
    refused(InputError, "exported for dimension 0 = 3 only, not --batch 5", static, batch=5)


def test_a_file_that_is_no_program_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.pt2"
    path.write_text("no program", encoding="utf-8")
    refused(ModelLoadError, f"{path}: torch.export.load can't read it", path)
