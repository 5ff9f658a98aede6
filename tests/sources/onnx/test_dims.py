"""Free dimensions: what gives them a size, what is asked for, what contradicts itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

from graphmem.errors import InputError
from graphmem.sources.inputs import InputRequest
from graphmem.sources.onnx.arguments import Arguments, arguments_of
from graphmem.sources.onnx.expressions import names_in, solved, value_of
from graphmem.sources.onnx.read import as_model
from tests.sources.onnx.graphs import Shape, model, node, value

INT64 = TensorProto.INT64


def asked(shapes: dict[str, Shape | None], **request: Any) -> Arguments:
    """The arguments of a model with inputs of these shapes."""
    inputs = [value(name, shape) for name, shape in shapes.items()]
    first = next(iter(shapes))
    proto = model([helper.make_node("Identity", [first], ["y"])], inputs)
    return arguments_of(as_model(proto, "m.onnx"), InputRequest(**request))


def shapes_of(shapes: dict[str, Shape | None], **request: Any) -> list[tuple[int, ...]]:
    return [spec.shape for spec in asked(shapes, **request).args]


DECODER: dict[str, Shape | None] = {
    "ids": ("batch", "seq"),
    "mask": ("batch", "past + seq"),
    "past": ("batch", 4, "past", 16),
}
UNNAMED: dict[str, Shape | None] = {"x": (None, 3, None)}


@pytest.mark.parametrize(
    ("shapes", "request_", "expected"),
    [
        ({"x": ("n", 3)}, {"dims": ("n=8",)}, [(8, 3)]),
        ({"x": ("n", 3)}, {"inputs": ("8x3",)}, [(8, 3)]),
        ({"x": ("n", 3)}, {"inputs": ("x=8x3",)}, [(8, 3)]),
        ({"x": ("n", 3)}, {"batch": 8}, [(8, 3)]),
        ({"x": ("n", 3)}, {"default_dim": 8}, [(8, 3)]),
        ({"x": (2, 3)}, {}, [(2, 3)]),
        ({"x": (2, 3)}, {"batch": 2}, [(2, 3)]),
        ({"x": ()}, {}, [()]),
        ({"x": ("n",), "z": ("n", "m")}, {"dims": ("n=2", "m=5")}, [(2,), (2, 5)]),
        ({"x": ("n",), "z": ("n", "m")}, {"inputs": ("z=2x5",)}, [(2,), (2, 5)]),
        (UNNAMED, {"batch": 8, "seq": 5}, [(8, 3, 5)]),
        (UNNAMED, {"batch": 8, "default_dim": 6}, [(8, 3, 6)]),
        (UNNAMED, {"inputs": ("8x3x9",)}, [(8, 3, 9)]),
        (DECODER, {"batch": 2, "seq": 7, "dims": ("past=1",)}, [(2, 7), (2, 8), (2, 4, 1, 16)]),
        (DECODER, {"dims": ("past=0",), "default_dim": 3}, [(3, 3), (3, 3), (3, 4, 0, 16)]),
        (DECODER, {"inputs": ("ids=2x7", "mask=2x9")}, [(2, 7), (2, 9), (2, 4, 2, 16)]),
        ({"x": ("2*n",), "z": ("n",)}, {"inputs": ("x=8",)}, [(8,), (4,)]),
        ({"x": ("2*n",), "z": ("n",)}, {"dims": ("2*n=8",)}, [(8,), (4,)]),
        ({"x": ("batch",), "z": ("tokens",)}, {"batch": 8, "dims": ("tokens=3",)}, [(8,), (3,)]),
        ({"/x.1:0": ("n", 3)}, {"inputs": ("/x.1:0=8x3",)}, [(8, 3)]),
        ({"/x.1:0": ("n", 3)}, {"inputs": ("x_1_0=8x3",)}, [(8, 3)]),
        ({"x": None}, {"inputs": ("8x3",)}, [(8, 3)]),
    ],
)
def test_sizes_are_given_in_many_ways(
    shapes: dict[str, Shape | None], request_: dict[str, Any], expected: list[tuple[int, ...]]
) -> None:
    assert shapes_of(shapes, **request_) == expected


@pytest.mark.parametrize(
    ("shapes", "request_", "message"),
    [
        (
            {"x": ("n", 3), "z": (None, "k")},
            {},
            "m.onnx: sizes are missing: 'n' (dimension 0 of 'x'), 'k' (dimension 1 of 'z'), "
            "dimension 0 of 'z' (without a name); give them, as in: graphmem analyze m.onnx "
            "--dim n=64 --dim k=64 --input z=8x64 (or --default-dim 64 for all)",
        ),
        (DECODER, {"batch": 2}, "'seq' (dimension 1 of 'ids'), 'past' (dimension 1 of 'mask'); "),
        ({"x": tuple(f"d{i}" for i in range(12))}, {}, "'d9' (dimension 9 of 'x') and 2 more"),
        ({"x": ("n",)}, {"dims": ("m=2",)}, "no dimension 'm'; the free dimensions are: n"),
        ({"x": ("batch",)}, {"dims": ("8",)}, "write NAME=N, such as batch=8"),
        ({"x": ("batch",)}, {"dims": ("batch=-1",)}, "write NAME=N, such as batch=8"),
        ({"x": ("n",)}, {"dims": ("n=2", "n=3")}, "'n' is 2 by --dim n=2 and 3 by --dim n=3"),
        ({"x": ("n",)}, {"dims": ("n=2",), "batch": 3}, "'n' is 2 by --dim n=2 and 3 by --batch 3"),
        ({"x": ("n",), "z": ("n",)}, {"inputs": ("2", "3")}, "'n' is 2 by --input x=2 and 3 by"),
        ({"x": ("n", 3)}, {"inputs": ("2x4",)}, "dimension 1 of 'x' is fixed to 3 in the file"),
        ({"x": ("n", 3)}, {"inputs": ("2",)}, "has 2 dimensions (nx3), not 1"),
        ({"x": ("n",)}, {"inputs": ("2", "2")}, "m.onnx has 1 inputs"),
        ({"x": ("n",)}, {"inputs": ("x=2", "x=2")}, "'x' is given twice"),
        ({"x": ("n",)}, {"inputs": ("z=2",)}, "has no input 'z'; it has 'x'"),
        ({"x": ("n",)}, {"inputs": ("2:int64",)}, "type in the file is float32, not int64"),
        ({"x": (2, 3)}, {"batch": 4}, "the first dimension of 'x' is 2"),
        ({"x": ()}, {"batch": 4}, "no input has a dimension"),
        ({"x": ("n",)}, {"batch": 4, "seq": 2}, "has a free dimension after the first"),
        ({"x": ("i",), "z": ("j",)}, {"batch": 4}, "which of 'i', 'j' is the batch?"),
        ({"x": ("2*n",), "z": ("n",)}, {"dims": ("2*n=8", "n=3")}, "is 8 by --dim 2*n=8, but 6"),
        ({"x": ("n/2",)}, {"dims": ("n=3",)}, "'n/2' has no whole size with n=3"),
        ({"x": ("n-4",)}, {"dims": ("n=3",)}, "'n-4' has no whole size with n=3"),
        ({"x": (2**62, 2)}, {}, "is more than memory can hold"),
        ({"x": ("n" * 10**6,)}, {}, "sizes are missing: 'nnn"),
        ({"x": None}, {}, "does not say the shape of input 'x'"),
    ],
)
def test_what_is_missing_or_contradicts_itself_is_said_in_one_line(
    shapes: dict[str, Shape | None], request_: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        asked(shapes, **request_)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1_000


def typed(kind: Any, **request: Any) -> Any:
    proto = model([node("Identity", "x", "y")], [helper.make_value_info("x", kind)], ("y",))
    return arguments_of(as_model(proto, "m.onnx"), InputRequest(**request)).args[0]


def tensor(element: int, shape: Shape = ("n",)) -> Any:
    return helper.make_tensor_type_proto(element, shape)


def test_element_types_are_those_of_the_file() -> None:
    assert typed(tensor(TensorProto.FLOAT16), batch=2).dtype is torch.float16
    assert typed(tensor(TensorProto.INT4), batch=2).dtype is torch.int8


def test_integers_may_have_values() -> None:
    sizes = typed(tensor(INT64), inputs=("x=4:int64=arange",))
    assert sizes.tolist() == [0, 1, 2, 3]
    rate = typed(tensor(INT64, ()), inputs=("x==16000",))
    assert (rate.shape, int(rate)) == ((), 16000)


def test_strings_are_empty_ones() -> None:
    texts = typed(tensor(TensorProto.STRING, ("n", 2)), batch=3)
    np.testing.assert_array_equal(texts, np.full((3, 2), "", dtype=object))


def test_a_sequence_is_a_list_of_what_is_given() -> None:
    kind = helper.make_sequence_type_proto(tensor(TensorProto.FLOAT, ("n",)))
    assert typed(kind) == []
    assert [s.shape for s in typed(kind, inputs=("x=2", "x=3"))] == [(2,), (3,)]


def test_an_optional_is_absent_unless_it_is_given() -> None:
    kind = helper.make_optional_type_proto(tensor(TensorProto.FLOAT, ("n",)))
    assert typed(kind) is None
    assert typed(kind, inputs=("x=2",)).shape == (2,)


def test_a_map_is_refused() -> None:
    kind = helper.make_map_type_proto(INT64, tensor(TensorProto.FLOAT))
    with pytest.raises(InputError, match="input 'x' is a map"):
        typed(kind)


def test_dimensions_of_other_values_can_be_named() -> None:
    inner = value("t", ("rows",))
    proto = model(
        [node("Relu", "x", "t"), node("Neg", "t", "y")], [value("x", (2,))], value_info=[inner]
    )
    given = arguments_of(as_model(proto, "m.onnx"), InputRequest(dims=("rows=2",)))
    assert given.sizes == {"rows": 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", 6),
        ("2*a", 12),
        ("a + b", 9),
        ("floor(a/4)", 1),
        ("ceiling(a/4)", 2),
        ("a//4", 1),
        ("Max(a, b)", 6),
        ("-a + 10", 4),
        ("a/4", None),
        ("a/(b-3)", None),
        ("c", None),
        ("__import__('os')", None),
        ("a.b", None),
        ("a**9999999", None),
        ("(" * 5000, None),
    ],
)
def test_expressions_are_arithmetic_alone(text: str, expected: int | None) -> None:
    assert value_of(text, {"a": 6, "b": 3}) == expected


def test_one_name_of_an_expression_follows_from_its_size() -> None:
    assert names_in("2*a + b") == ("a", "b")
    assert solved("2*a + b", 11, {"b": 3}) == ("a", 4)
    assert solved("2*a + b", 12, {"b": 3}) is None  # 4.5
    assert solved("a*a", 16, {}) is None  # not linear
    assert solved("a + b", 4, {}) is None


def test_the_command_line_takes_a_path_with_spaces() -> None:
    proto = model([node("Relu", "x", "y")])
    with pytest.raises(InputError, match=r"analyze 'my model\.onnx' --dim n=64"):
        arguments_of(as_model(proto, "my model.onnx"), InputRequest())
