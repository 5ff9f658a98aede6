"""``--input`` and ``--batch`` over the inputs that a factory gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from graphmem.errors import InputError
from graphmem.sources import InputSpec
from tests.sources.subjects import load, refused

Write = Callable[[str], Path]

MODEL = """
class Net(nn.Module):
    def forward(self, ids, images=None, *, scale=None):
        return ids
def bare():
    return Net()
def full():
    return Net(), (torch.arange(6).reshape(2, 3), torch.zeros(2, 3, 4, 4))
def mixed():
    return Net(), {"ids": "2x3:int64", "images": torch.ones(5), "scale": torch.tensor(2.0)}
def listed():
    return Net(), ([torch.zeros(3, 4, 4), torch.zeros(3, 4, 4)],)
class Needy(nn.Module):
    def forward(self, input_ids, pixel_values, *, weight):
        return input_ids
"""


def test_an_input_without_a_name_is_the_next_positional_one(write: Write) -> None:
    args = load(f"{write(MODEL)}:full", inputs=("4x3:int64",)).args
    assert args[0] == InputSpec((4, 3), dtype=args[0].dtype)
    assert args[1].shape == (2, 3, 4, 4)


def test_an_input_with_a_name_replaces_that_argument_wherever_it_stands(write: Write) -> None:
    path = write(MODEL)
    args = load(f"{path}:full", inputs=("images=4x3",)).args
    assert args[1] == InputSpec((4, 3), name="images")
    kwargs = load(f"{path}:mixed", inputs=("images=4x3", "4x3:int64")).kwargs
    assert kwargs["images"].shape == (4, 3)
    assert kwargs["ids"].shape == (4, 3)


def test_known_values_of_an_input_are_made(write: Write) -> None:
    assert load(f"{write(MODEL)}:bare", inputs=("2:int64=3",)).args[0].tolist() == [3, 3]


def test_batch_repeats_the_rows_of_real_tensors(write: Write) -> None:
    ids, images = load(f"{write(MODEL)}:full", batch=5).args
    assert ids.tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2], [3, 4, 5], [0, 1, 2]]
    assert images.shape == (5, 3, 4, 4)
    assert load(f"{write(MODEL)}:full", batch=1).args[0].tolist() == [[0, 1, 2]]


def test_batch_leaves_scalars_and_other_lengths_alone(write: Write) -> None:
    kwargs = load(f"{write(MODEL)}:mixed", batch=8).kwargs
    assert kwargs["ids"].shape == (8, 3)
    assert kwargs["images"].shape == (5,)
    assert kwargs["scale"].shape == ()


def test_batch_applies_to_given_inputs(write: Write) -> None:
    assert load(f"{write(MODEL)}:bare", inputs=("2x3",), batch=9).args[0].shape == (9, 3)


@pytest.mark.parametrize(
    ("factory", "asked", "message"),
    [
        ("listed", {"batch": 4}, "--batch 4: no input of"),
        ("bare", {}, "forward needs 'ids'; give the shapes, as in: graphmem analyze"),
        (
            "Needy",
            {},
            "forward needs 'input_ids', 'pixel_values' and 'weight'; give the shapes, as in: ",
        ),
        (
            "Needy",
            {"inputs": ("2x3",)},
            "--input pixel_values=8x3x224x224 --input weight=8x128",
        ),
        ("bare", {"inputs": ("idz=2x3",)}, "forward has no argument 'idz'; did you mean 'ids'?"),
        ("bare", {"inputs": ("2", "2", "2")}, "too many positional arguments"),
        ("bare", {"inputs": ("2:int46",)}, "did you mean 'int64'?"),
    ],
)
def test_inputs_that_dont_fit_are_refused_in_one_line(
    write: Write, factory: str, asked: dict[str, object], message: str
) -> None:
    refused(InputError, message, f"{write(MODEL)}:{factory}", **asked)
