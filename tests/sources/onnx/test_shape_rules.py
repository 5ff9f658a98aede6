"""Reshaping and filling: the node tests, old opsets, strings, and sizes known in a trace."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper

import graphmem
from graphmem.errors import ModelLoadError
from graphmem.sources.onnx.module import build_module
from graphmem.sources.onnx.read import as_model
from graphmem.sources.onnx.rules.shapes import target_shape
from tests.sources.onnx import backend
from tests.sources.onnx.text_graphs import analysis, compute, node_tests, notes, sizes

_OPERATORS = (
    *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Shape", "Size", "Concat"),
    *("Split", "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "Col2Im"),
    *("ConstantOfShape", "Range", "EyeLike", "OneHot", "Trilu", "Pad", "CenterCropPad"),
)
_X = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("name", node_tests(*_OPERATORS))
def test_the_node_tests_pass(name: str) -> None:
    assert backend.run_case(backend.cases()[name]) is None


@pytest.mark.parametrize(
    ("shape", "wanted", "copies_zero", "made"),
    [
        ((2, 3, 4), (0, -1), True, [2, 12]),
        ((2, 3, 4), (0, 0, -1), True, [2, 3, 4]),
        ((2, 3, 4), (-1, 2), True, [12, 2]),
        ((0, 3), (0, -1), True, [0, 3]),  # the 3 that remain of a tensor without elements
        ((0, 3), (3, 0), False, [3, 0]),
        ((2, 0), (2, -1), True, [2, 0]),
        ((1,), (), True, []),
    ],
)
def test_a_zero_copies_a_size_and_minus_one_is_what_remains(
    shape: tuple[int, ...], wanted: tuple[int, ...], copies_zero: bool, made: list[int]
) -> None:
    assert target_shape(shape, wanted, copies_zero=copies_zero) == made


@pytest.mark.parametrize(
    ("opset", "node", "wanted"),
    [
        (1, "Reshape<shape=[0,-1,1]>(x)", (2, 3, 1)),
        (1, "Squeeze<axes=[0]>(u)", (2, 3)),
        (1, "Unsqueeze<axes=[0,3]>(x)", (1, 2, 3, 1)),
        (1, "Concat(x, x)", (2, 6)),  # along 1, before opset 4
        (4, "Concat<axis=0>(x, x)", (4, 3)),
        (1, "Pad<paddings=[1,0,0,2]>(x)", (3, 5)),
        (2, "Pad<pads=[1,0,0,2], value=7.0>(x)", (3, 5)),
        (2, "Pad<pads=[0,-1,0,0]>(x)", (2, 2)),
        (9, "Flatten<axis=-1>(x)", (2, 3)),
    ],
)
def test_old_opsets_have_attributes_in_place_of_inputs(
    opset: int, node: str, wanted: tuple[int, ...]
) -> None:
    """Their results have all elements of x that the new ones' have."""
    inputs = "float[2,3] x, float[1,2,3] u"
    made = compute(f"g ({inputs}) => (y) {{ y = {node} }}", _X, _X[None], opset=opset)
    assert tuple(made.shape) == wanted
    assert set(made.reshape(-1).tolist()) <= {*range(8)}


def test_tile_of_opset_1_repeats_one_axis() -> None:
    text = "g (float[2,3] x, int64 n, int64 axis) => (y) { y = Tile(x, n, axis) }"
    made = compute(text, _X, torch.tensor(2), torch.tensor(1), opset=1)
    assert torch.equal(made, torch.cat([_X, _X], 1))


def test_parts_that_do_not_add_up_are_an_error() -> None:
    text = "g (float[2,3] x) => (a, b) { a, b = Split<axis=1, split=[1,1]>(x) }"
    with pytest.raises(ModelLoadError, match=r"node Split.*do not add up to 3"):
        compute(text, _X, opset=11)


def test_a_part_of_a_split_is_smaller_where_they_cannot_be_equal() -> None:
    """Five in three parts: 2, 2, 1."""
    text = "g (float[5] x) => (a, b, c) { a, b, c = Split<num_outputs=3>(x) }"
    assert [len(part) for part in compute(text, torch.arange(5.0), opset=18)] == [2, 2, 1]


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
@pytest.mark.parametrize("shape", [(5,), (2, 3, 5), (1, 1, 5, 4)])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.INT64])
def test_padding_is_numpys(mode: str, shape: tuple[int, ...], kind: int) -> None:
    """Of floats of images by torch's own kernels, of all others by indices."""
    x = np.arange(math.prod(shape)).reshape(shape)
    x = x.astype(helper.tensor_dtype_to_np_dtype(kind))
    pads = [0] * (len(shape) - 1) + [2] + [0] * (len(shape) - 1) + [3]
    node = helper.make_node("Pad", ["x", "pads"], ["y"], mode=mode)
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [helper.make_tensor("pads", TensorProto.INT64, [len(pads)], pads)],
    )
    opsets = [helper.make_opsetid("", 19)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    made = build_module(as_model(proto, "m.onnx"), weights=True)(torch.from_numpy(x))
    sides = [*[(0, 0)] * (len(shape) - 1), (2, 3)]
    np.testing.assert_array_equal(made, np.pad(x, sides, mode=mode))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        ("Reshape(x, four)", ["a", "b", "c", "a"]),
        ("Transpose(x)", [["a", "c"], ["b", "a"]]),
        ("Concat<axis=0>(x, x)", [["a", "b"], ["c", "a"], ["a", "b"], ["c", "a"]]),
        ("Pad(x, pads)", [["a", "b", ""], ["c", "a", ""]]),
        ("Gather<axis=1>(x, last)", [["b"], ["a"]]),
    ],
)
def test_strings_move_as_numbers_do(node: str, wanted: object) -> None:
    constants = "<int64[1] four={4}, int64[4] pads={0,0,0,1}, int64[1] last={-1}>"
    words = np.array([["a", "b"], ["c", "a"]], dtype=object)
    made = compute(f"g (string[2,2] x) => (y) {constants} {{ y = {node} }}", words)
    assert made.tolist() == wanted


def test_a_range_of_halves_is_counted_in_single_precision() -> None:
    """Half precision has no 2049: adding 1 to 2048 gives 2048."""
    text = "g (float16 a, float16 b, float16 c) => (y) { y = Range(a, b, c) }"
    made = compute(text, *(torch.tensor(n).half() for n in (2046.0, 2052.0, 2.0)), opset=27)
    assert made.tolist() == [2046.0, 2048.0, 2050.0]


def test_padding_has_a_gradient() -> None:
    """1 for each element of x, and none for what is around it."""
    text = """g (float[2,3] x) => (y) <int64[4] pads={0,1,0,0}> {
        p = Pad<mode="edge">(x, pads)
        y = Transpose(p)
    }"""
    x = _X.clone().requires_grad_()
    compute(text, x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[2, 1, 1], [2, 1, 1]]  # the first column twice


_VIEW = """g (float[b,c,h,w] x) => (y)
<int64 first={0}, int64[1] zero={0}, int64[1] minus={-1}, int64[1] two={2}> {
    s = Shape(x)
    b = Gather<axis=0>(s, first)
    n = Unsqueeze(b, zero)
    last = Slice(s, two, minus, zero)
    t = Concat<axis=0>(n, minus, last)
    flat = Reshape(x, t)
    y = Relu(flat)
}"""


@pytest.mark.parametrize("shape", ["8x3x4x5", "2x7x1x6"])
def test_sizes_are_known_in_a_trace(shape: str) -> None:
    """Shape, Gather, Unsqueeze, Slice, Concat and Reshape, as a flattening is exported."""
    report = analysis(_VIEW, graphmem.spec(shape))
    n, c, h, w = map(int, shape.split("x"))
    assert sizes(report)["Relu"] == n * c * w * h * 4
    assert notes(report) == {}


def test_a_triangle_of_an_unknown_diagonal_has_the_size_of_all() -> None:
    text = "g (float[8,8] x, int64[1] k) => (y) { y = Trilu(x, k) }"
    report = analysis(text, graphmem.spec("8x8"), graphmem.spec("1:int64"))
    assert sizes(report)["Trilu"] == 256
    assert notes(report) == {}


def test_sizes_that_constants_of_floats_scale_are_known_in_a_trace() -> None:
    """Half the height, as an interpolation is exported: 3 rows of 5 floats."""
    text = """g (float[h,w] x) => (y) <float half={0.5}, int64[1] zero={0}, int64[1] axis={0}> {
        s = Shape<start=0, end=1>(x)
        f = Cast<to=1>(s)
        m = Mul(f, half)
        d = Floor(m)
        n = Cast<to=7>(d)
        v = Slice(x, zero, n, axis)
        y = Relu(v)
    }"""
    report = analysis(text, graphmem.spec("7x5"))
    assert sizes(report)["Relu"] == 60
    assert notes(report) == {}
