"""Texts such as ``tokens=8x1024:int64=1``, and the tensors that they stand for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from graphmem.errors import InputError
from graphmem.sources import InputRequest, InputSpec, as_inputs, spec


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("32x3x224x224", InputSpec((32, 3, 224, 224))),
        ("8x1024:int64", InputSpec((8, 1024), torch.int64)),
        ("8x128:int64=1", InputSpec((8, 128), torch.int64, "1")),
        ("8x128=0.5", InputSpec((8, 128), torch.float32, "0.5")),
        ("tokens=8x1024:int64", InputSpec((8, 1024), torch.int64, None, "tokens")),
        ("mask=2x4:bool=ones", InputSpec((2, 4), torch.bool, "ones", "mask")),
        (":int64", InputSpec((), torch.int64)),
        ("1", InputSpec((1,))),
        ("0x3", InputSpec((0, 3))),
        ("2:bf16", InputSpec((2,), torch.bfloat16)),
        ("2:torch.float16", InputSpec((2,), torch.float16)),
        ("2:FP32", InputSpec((2,))),
        ("2:float8_e4m3fn", InputSpec((2,), torch.float8_e4m3fn)),
    ],
)
def test_a_text_is_read(text: str, expected: InputSpec) -> None:
    assert spec(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8x128:int46", "'int46' is not a dtype; did you mean 'int64'?"),
        ("8x128:flot32", "did you mean 'float32'?"),
        ("2:zzzz", "write int64, float32, bf16"),
        ("32,3,224,224", "write the shape with x between the sizes, as 32x3x224x224"),
        ("32*3", "with x between"),
        ("2x-1", "a size can't be negative"),
        ("", "write [NAME=]SHAPE[:DTYPE][=VALUE]"),
        ("tokens", "write [NAME=]SHAPE"),
        ("8xhello", "write [NAME=]SHAPE"),
        ("2:int64=0.5", "'0.5' is no int64 number, zeros, ones, arange"),
        ("2:int64=zeroes", "did you mean 'zeros'?"),
        ("2:int8=300", "'300' is no int8 number"),
    ],
)
def test_a_text_that_cant_be_read_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        spec(text)
    assert message in str(caught.value)
    assert repr(text) in str(caught.value) or text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("2x2:int64=1", [[1, 1], [1, 1]]),
        ("2=zeros", [0.0, 0.0]),
        ("2:bool=ones", [True, True]),
        ("2x3:int64=arange", [[0, 1, 2], [0, 1, 2]]),
        (":int64=7", 7),
        (":int64=arange", 0),
        ("2:float16=-0.5", [-0.5, -0.5]),
    ],
)
def test_known_values_become_a_real_tensor(text: str, values: Any) -> None:
    tensor = spec(text).materialize()
    assert tensor.tolist() == values
    assert tensor.dtype == spec(text).dtype
    assert tensor.device.type == "cpu"
    assert tensor.is_contiguous()


def test_unknown_values_become_no_tensor() -> None:
    with pytest.raises(InputError, match="its values are not known"):
        spec("2x2").materialize()


def test_an_example_of_unknown_values_can_be_run() -> None:
    assert spec("100").example().std() > 0.1
    assert spec("3:int64").example().tolist() == [0, 0, 0]
    ids = InputSpec((1000,), torch.int64, high=5).example()
    assert set(ids.tolist()) == {0, 1, 2, 3, 4}
    assert spec("2:bool").example().tolist() == [False, False]
    assert spec("2=3").example().tolist() == [3.0, 3.0]


def test_a_spec_reads_back_from_its_own_text() -> None:
    for text in ("x=2x3:int64=1", "2x3:float32", ":bool"):
        assert str(spec(text)) == text


def test_inputs_are_positional_or_keyword_arguments() -> None:
    tensor = torch.ones(2)
    assert as_inputs(None).args == ()
    assert as_inputs(tensor).args == (tensor,)
    assert as_inputs((tensor, [tensor])).args == (tensor, [tensor])
    assert as_inputs({"x": tensor}).kwargs == {"x": tensor}
    assert as_inputs("2x3").args == (InputSpec((2, 3)),)
    both = as_inputs(("2x3", "y=4"))
    assert both.args == (InputSpec((2, 3)),)
    assert both.kwargs == {"y": InputSpec((4,), name="y")}


def test_a_size_below_one_is_refused() -> None:
    with pytest.raises(InputError, match="--batch 0: must be at least 1"):
        InputRequest(batch=0)
    with pytest.raises(InputError, match="--seq -4: must be at least 1"):
        InputRequest(seq=-4)
