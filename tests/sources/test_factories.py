"""Factories in files and modules, their inputs, and what goes wrong in them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from graphmem.errors import InputError, ModelLoadError
from graphmem.sources import InputSpec, LoadedSubject
from tests.sources.subjects import load, refused

Write = Callable[[str], Path]

NET = """
class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.linear = nn.Linear(width, width)
    def forward(self, x, mask=None, *, scale=1.0):
        return self.linear(x)
"""


def linear(subject: LoadedSubject) -> nn.Linear:
    """The one layer of the model."""
    layer = subject.model.get_submodule("linear")
    assert isinstance(layer, nn.Linear)
    return layer


def test_a_factory_that_returns_a_module_and_its_inputs(write: Write) -> None:
    path = write(NET + "def build():\n    return Net(), torch.zeros(4, 8)\n")
    subject = load(f"{path}:build")
    assert (subject.kind, subject.name, subject.real) == ("factory", f"{path}:build", False)
    assert all(p.is_meta for p in subject.model.parameters())
    (x,) = subject.args
    assert x.shape == (4, 8)
    assert x.device.type == "cpu"


def test_a_class_or_a_method_is_a_factory_too(write: Write) -> None:
    path = write(NET + "    @staticmethod\n    def wide():\n        return Net(16)\n")
    assert load(f"{path}:Net", inputs=("2x8",)).args == (InputSpec((2, 8)),)
    assert linear(load(f"{path}:Net.wide", inputs=("2x16",))).in_features == 16


def test_a_module_that_exists_already_is_taken_as_it_is(write: Write) -> None:
    path = write(NET + "net = Net()\n")
    assert not linear(load(f"{path}:net", inputs=("2x8",))).weight.is_meta


def test_inputs_as_a_dict_or_as_texts(write: Write) -> None:
    path = write(NET + "def build():\n    return Net(), {'x': '4x8', 'mask': torch.ones(4)}\n")
    kwargs = load(f"{path}:build").kwargs
    assert kwargs["x"] == InputSpec((4, 8))
    assert kwargs["mask"].tolist() == [1.0] * 4


def test_batch_and_seq_reach_a_factory_that_has_them(write: Write) -> None:
    path = write(NET + "def build(batch=2, seq=3):\n    return Net(), torch.zeros(batch, seq, 8)\n")
    assert load(f"{path}:build").args[0].shape == (2, 3, 8)
    assert load(f"{path}:build", batch=5, seq=7).args[0].shape == (5, 7, 8)


def test_seq_is_refused_where_a_factory_has_no_use_for_it(write: Write) -> None:
    path = write(NET + "def build():\n    return Net()\n")
    refused(InputError, "--seq needs a factory with a parameter 'seq'", f"{path}:build", seq=4)


def test_a_constructor_that_needs_a_value_is_built_for_real(write: Write) -> None:
    path = write(
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        width = int(torch.linspace(0, 8, 2)[1].item())\n"
        "        self.linear = nn.Linear(width, width)\n"
        "    def forward(self, x):\n"
        "        return self.linear(x)\n"
    )
    subject = load(f"{path}:Net", inputs=("2x8",))
    assert subject.real
    assert subject.rebuild_really is None
    assert not linear(subject).weight.is_meta


def test_a_model_on_meta_can_be_built_again_for_real(write: Write) -> None:
    path = write(NET + "def build():\n    return Net(), torch.zeros(4, 8)\n")
    subject = load(f"{path}:build", batch=6)
    assert subject.rebuild_really is not None
    again = subject.rebuild_really()
    assert again.real
    assert not linear(again).weight.is_meta
    assert again.args[0].shape == (6, 8)


@pytest.mark.parametrize(
    "move",
    [".cuda()", ".to('cuda')", ".to(torch.device('cuda:0'))", ".to(device='cuda')"],
)
def test_a_factory_for_a_gpu_is_built_without_one(write: Write, move: str) -> None:
    path = write(
        NET + f"def build():\n    inputs = torch.zeros(4, 8, device='cuda'), torch.ones(4){move}\n"
        f"    return Net(){move}, inputs\n"
    )
    subject = load(f"{path}:build")
    assert linear(subject).weight.is_meta
    assert [x.device.type for x in subject.args] == ["cpu", "cpu"]
    assert subject.rebuild_really is not None
    assert linear(subject.rebuild_really()).weight.device.type == "cpu"


def test_the_dtype_survives_where_the_gpu_does_not(write: Write) -> None:
    path = write(NET + "def build():\n    return Net().to('cuda', torch.float16)\n")
    assert linear(load(f"{path}:build", inputs=("2x8",))).weight.dtype is torch.float16


def test_large_inputs_have_no_values(write: Write) -> None:
    path = write(NET + "def build():\n    return Net(), torch.zeros(2**22, 8)\n")
    assert load(f"{path}:build").args[0].is_meta  # 128 MiB


def test_prints_of_the_factory_stay_off_stdout(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(
        NET + "print('importing')\ndef build():\n    print('building')\n    return Net()\n"
    )
    load(f"{path}:build", inputs=("2x8",))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "building" in captured.err


def test_a_file_imports_its_neighbours_and_leaves_the_path_alone(
    tmp_path: Path, write: Write
) -> None:
    (tmp_path / "neighbour_of_net.py").write_text("WIDTH = 24\n", encoding="utf-8")
    (tmp_path / "late_neighbour.py").write_text("", encoding="utf-8")
    path = write(
        NET + "from neighbour_of_net import WIDTH\n"
        "def build():\n    import late_neighbour\n    return Net(WIDTH)\n"
    )
    before = list(sys.path)
    assert linear(load(f"{path}:build", inputs=("2x24",))).in_features == 24
    assert sys.path == before


def test_a_module_is_found_from_the_current_folder(
    tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(NET).rename(tmp_path / "net_for_import.py")
    monkeypatch.chdir(tmp_path)
    assert load("net_for_import:Net", inputs=("2x8",)).kind == "factory"


def test_the_dtype_of_an_input_is_the_requests_where_it_says_none(write: Write) -> None:
    path = write(NET)
    (x,) = load(f"{path}:Net", inputs=("2x8",), dtype=torch.bfloat16).args
    assert x.dtype is torch.bfloat16


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def build():\n    raise ValueError('bad\\nluck')\n", "ValueError: bad (net.py, line 4)"),
        ("def build():\n    return nn.Linear('a', 2)\n", "(net.py, line 4)"),
        ("def build():\n    raise SystemExit('stop')\n", "SystemExit: stop (net.py, line 4)"),
        ("def build():\n    return 3\n", "returned a int; return an nn.Module or (module, inputs)"),
        ("def build():\n    return nn.ReLU(), 1, 2\n", "returned a tuple of ReLU, int, int"),
        ("def build(width):\n    return nn.ReLU()\n", "needs 'width'; write a factory"),
        ("def buidl():\n    return nn.ReLU()\n", "it has no 'build'; did you mean 'buidl'?"),
        ("build = 3\n", "is a int; name a function that returns an nn.Module"),
        ("def build(:\n", "SyntaxError: invalid syntax (net.py, line 3)"),
        ("x = 1 / 0\n", "ZeroDivisionError: division by zero (net.py, line 3)"),
        ("import no_such_module\n", "No module named 'no_such_module' (net.py, line 3)"),
    ],
)
def test_an_error_of_the_users_code_is_one_line(write: Write, code: str, message: str) -> None:
    path = write(code)
    refused(ModelLoadError, message, f"{path}:build")
    refused(ModelLoadError, str(path), f"{path}:build")
