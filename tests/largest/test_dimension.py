"""Dimensions: which there are, and how inputs are asked for at a size."""

from __future__ import annotations

import pytest

from graphmem.errors import InputError
from graphmem.largest import requests
from graphmem.sources import InputRequest


@pytest.mark.parametrize(
    ("inputs", "name", "expected"),
    [
        (("8x3xSIZExSIZE",), "SIZE", ("8x3x5x5",)),
        (("SIZExSIDE", "SIDE"), "SIDE", None),
        (("x=Bx16", "mask=B:bool"), "B", ("x=5x16", "mask=5:bool")),
        (("tokens=8xT:int64=1",), "T", ("tokens=8x5:int64=1",)),
        (("AxA",), "A", ("5x5",)),
    ],
)
def test_a_name_stands_for_a_size_in_an_input(
    inputs: tuple[str, ...], name: str, expected: tuple[str, ...] | None
) -> None:
    if expected is None:
        with pytest.raises(InputError, match="SIZE has no size"):
            requests("m.py:f", InputRequest(inputs=inputs), name)
        return
    assert requests("m.py:f", InputRequest(inputs=inputs), name)(5).inputs == expected


def test_batch_and_seq_are_those_of_the_options() -> None:
    request = InputRequest(seq=128)
    assert requests("m.py:f", request, "batch")(5) == InputRequest(seq=128, batch=5)
    assert requests("m.py:f", InputRequest(batch=2), "seq")(5) == InputRequest(seq=5, batch=2)
    with pytest.raises(InputError, match="it is what is searched"):
        requests("m.py:f", request, "seq")


def test_other_names_are_free_dimensions_of_an_onnx() -> None:
    made = requests("m.onnx", InputRequest(dims=("batch=2",)), "height")(224)
    assert made.dims == ("batch=2", "height=224")


def test_an_unknown_name_is_an_error_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'batch'"):
        requests("m.py:f", InputRequest(), "bacth")
