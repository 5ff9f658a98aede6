"""Reading: functions, order, weights in and beside the file, old IR versions."""

from __future__ import annotations

import copy
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from graphmem.errors import ModelLoadError
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.module import build_module
from graphmem.sources.onnx.read import as_model, read_model
from graphmem.sources.onnx.subject import from_onnx
from tests.sources.onnx.graphs import graph, model, node, value, write


def run(proto: onnx.ModelProto, *inputs: torch.Tensor) -> torch.Tensor:
    """What a model computes."""
    return build_module(as_model(proto, "model.onnx"), weights=True)(*inputs)


def function(
    name: str,
    inputs: str,
    outputs: str,
    nodes: list[onnx.NodeProto],
    opset: int = 17,
    **more: Any,
) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, inputs.split(), outputs.split(), nodes, opsets, **more)


X = torch.tensor([-2.0, 3.0])


# -- functions


def test_a_function_becomes_its_nodes() -> None:
    twice = function("Twice", "a", "b", [node("Add", "a a", "b")])
    proto = model(
        [node("Twice", "x", "t", domain="own"), node("Relu", "t", "y")], functions=[twice]
    )
    assert run(proto, X).tolist() == [0.0, 6.0]
    assert [n.op for n in as_model(proto, "m").graph.nodes] == ["Add", "Relu"]


def test_a_function_is_called_twice_and_in_another() -> None:
    twice = function("Twice", "a", "b", [node("Add", "a a", "c"), node("Identity", "c", "b")])
    four = function(
        "Four",
        "a",
        "b",
        [node("Twice", "a", "c", domain="own"), node("Twice", "c", "b", domain="own")],
    )
    proto = model([node("Four", "x", "y", domain="own")], functions=[four, twice])
    assert run(proto, X).tolist() == [-8.0, 12.0]


def test_nodes_of_a_function_keep_its_opset() -> None:
    # Squeeze took its axes as an attribute before opset 13.
    squeezed = function("S", "a", "b", [node("Squeeze", "a", "b", axes=[0])], opset=11)
    read = as_model(model([node("S", "x", "y", domain="own")], functions=[squeezed]), "m")
    assert [(n.op, n.version) for n in read.graph.nodes] == [("Squeeze", 11)]


def test_attributes_of_a_call_reach_the_nodes_and_have_defaults() -> None:
    inner = node("LeakyRelu", "a", "b")
    reference = inner.attribute.add()
    reference.name, reference.ref_attr_name = "alpha", "slope"
    reference.type = onnx.AttributeProto.FLOAT
    default = helper.make_attribute("slope", 0.5)
    leaky = function("Leaky", "a", "b", [inner], attribute_protos=[default])
    called = [
        node("Leaky", "x", "y", domain="own"),
        node("Leaky", "x", "z", domain="own", slope=0.25),
    ]
    read = as_model(model(called, ("x",), ("y", "z"), functions=[leaky]), "m")
    assert [n.attributes for n in read.graph.nodes] == [{"alpha": 0.5}, {"alpha": 0.25}]


def test_an_input_of_a_function_may_be_left_out_or_given_back() -> None:
    passing = function("P", "a low", "a b", [node("Clip", "a low", "b")])
    called = model([node("P", "x", "y z", domain="own")], ("x",), ("y", "z"), functions=[passing])
    same, clipped = run(called, X)
    assert same.tolist() == clipped.tolist() == X.tolist()


def test_a_function_that_calls_itself_is_refused() -> None:
    again = function("A", "a", "b", [node("B", "a", "b", domain="own")])
    other = function("B", "a", "b", [node("A", "a", "b", domain="own")])
    proto = model([node("A", "x", "y", domain="own")], functions=[again, other])
    with pytest.raises(ModelLoadError, match="function 'A' calls itself"):
        as_model(proto, "m")


def test_functions_that_double_again_and_again_are_refused() -> None:
    functions = [
        function(
            f"F{i}",
            "a",
            "b",
            [
                node(f"F{i + 1}", "a", "c", domain="own"),
                node(f"F{i + 1}", "c", "b", domain="own"),
            ],
        )
        for i in range(40)
    ]
    functions.append(function("F40", "a", "b", [node("Relu", "a", "b")]))
    with pytest.raises(ModelLoadError, match="call for over 1048576 nodes"):
        as_model(model([node("F0", "x", "y", domain="own")], functions=functions), "m")


# -- order


def test_unsorted_nodes_are_sorted() -> None:
    proto = model([node("Relu", "b", "y"), node("Add", "a a", "b"), node("Neg", "x", "a")])
    assert [n.op for n in as_model(proto, "m").graph.nodes] == ["Neg", "Add", "Relu"]


def test_what_a_body_reads_counts_for_the_order() -> None:
    body = graph([node("Neg", "a", "b")], (), ("b",))
    taken = node("If", "c", "y", then_branch=body, else_branch=body)
    proto = model([taken, node("Relu", "x", "a")], ("x", value("c", (), TensorProto.BOOL)))
    assert [n.op for n in as_model(proto, "m").graph.nodes] == ["Relu", "If"]
    assert run(proto, X, torch.tensor(True)).tolist() == [0.0, -3.0]


# -- weights


def test_an_initializer_that_is_an_input_too_is_a_weight() -> None:
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    proto = model([node("Add", "x w", "y")], ("x", value("w", (2,))), ("y",), [weight])
    assert [v.name for v in as_model(proto, "m").graph.inputs] == ["x"]
    assert run(proto, X).tolist() == [-1.0, 4.0]


@pytest.mark.parametrize("indices", [[[0, 1], [1, 0]], [1, 2]], ids=["coordinates", "positions"])
def test_a_sparse_initializer_is_dense(indices: list[object]) -> None:
    values = numpy_helper.from_array(np.array([5, 7], np.float32), "w")
    where = numpy_helper.from_array(np.array(indices, np.int64), "w_indices")
    sparse = helper.make_sparse_tensor(values, where, [2, 2])
    proto = model([node("Add", "x w", "y")], sparse_initializer=[sparse])
    assert run(proto, torch.zeros(2, 2)).tolist() == [[0.0, 5.0], [7.0, 0.0]]


def test_attributes_of_ir_version_1_have_no_type() -> None:
    proto = model([node("LeakyRelu", "x", "y", alpha=0.5), node("Transpose", "y", "z", perm=[0])])
    for untyped in proto.graph.node:
        untyped.attribute[0].ClearField("type")
    read = as_model(proto, "m").graph.nodes
    assert [n.attributes for n in read] == [{"alpha": 0.5}, {"perm": (0,)}]


def test_a_weight_may_be_stored_as_its_sizes() -> None:
    sizes = numpy_helper.from_array(np.array([3, 2]), "sizes")
    one = numpy_helper.from_array(np.array([2.0], np.float32))
    filled = node("ConstantOfShape", "sizes", "w", value=one)
    proto = model([filled, node("MatMul", "x w", "y")], (value("x", (1, 3)),), ("y",), [sizes])
    module = build_module(as_model(proto, "m"), weights=True)
    assert [tuple(p.shape) for p in module.parameters()] == [(3, 2)]
    assert module(torch.ones(1, 3)).tolist() == [[6.0, 6.0]]
    zeros = node("ConstantOfShape", "s", "w")
    inner = model([node("Constant", "", "s", value_ints=[2]), zeros, node("Add", "x w", "y")])
    assert not list(build_module(as_model(inner, "m"), weights=True).parameters())


@pytest.mark.parametrize("name", ["vgg19", "resnet50"])
def test_the_light_models_have_the_weights_of_the_whole_ones(name: str) -> None:
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    graph_ = read_model(str(folder / f"light_{name}.onnx")).graph
    found = sum(w.nbytes for w in graph_.weights.values() if w.element is ElementType.FLOAT)
    # Torchvision's: 143,667,240 parameters; 25,557,032 and 53,120 statistics (and one scalar).
    assert found == 4 * {"vgg19": 143_667_240, "resnet50": 25_557_032 + 53_120 + 1}[name]


def test_a_weight_trained_at_one_node_only_is_two_tensors() -> None:
    # Exporters write the zeros of a bias and of a running mean once.
    zeros, ones = (
        numpy_helper.from_array(np.full(2, v, np.float32), n) for v, n in ((0, "z"), (1, "o"))
    )
    image = value("x", ("n", 2, 3, 3))
    normed = model([node("BatchNormalization", "x o z z o", "y")], (image,), ("y",), [zeros, ones])
    module = build_module(as_model(normed, "m"), weights=True)
    assert sum(p.numel() for p in module.parameters()) == 4  # scale and bias
    assert sum(b.numel() for b in module.buffers()) == 4  # running mean and variance


def test_a_weight_of_several_nodes_is_one_parameter() -> None:
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    shared = model([node("Add", "x w", "a"), node("Mul", "a w", "y")], weights=[weight])
    module = build_module(as_model(shared, "m"), weights=True)
    assert sum(p.numel() for p in module.parameters()) == 2
    assert len(module.state_dict()) == 2


def test_constant_nodes_are_trained_only_where_a_file_has_no_other_weights() -> None:
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    nodes = [node("Constant", "", "c", value_floats=[1.0, 2.0]), node("Mul", "x c", "a")]
    with_weight = model([*nodes, node("Add", "a w", "y")], weights=[weight])
    without = model([*nodes, node("Neg", "a", "y")])
    for proto, trained in ((with_weight, [[1.0, 1.0]]), (without, [[1.0, 2.0]])):
        module = build_module(as_model(proto, "m"), weights=True)
        assert [p.tolist() for p in module.parameters()] == trained


# -- external data


def external(folder: Path, location: str, elements: int = 6000, **more: Any) -> str:
    """A model that adds a weight whose values lie in another file."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[elements])
    weight.data_location = TensorProto.EXTERNAL
    for key, text in {"location": location, **more}.items():
        weight.external_data.add(key=key, value=text)
    return write(folder, model([node("Add", "x w", "y")], weights=[weight]))


def test_values_are_read_from_their_place_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    values = np.arange(4, dtype=np.float32)
    (tmp_path / "sub" / "w.bin").write_bytes(values.tobytes())
    path = external(tmp_path, "sub/w.bin", elements=2, offset="8", length="8")
    assert from_onnx(path)(torch.zeros(2)).tolist() == [2.0, 3.0]


def test_a_missing_file_leaves_the_weight_without_values(tmp_path: Path) -> None:
    module = from_onnx(external(tmp_path, "w.bin"))
    assert [p.device.type for p in module.parameters()] == ["meta"]


def test_large_weights_beside_the_model_are_not_read_for_the_graph(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"too short")
    assert [p.numel() for p in from_onnx(external(tmp_path, "w.bin"), weights=False).parameters()]
    with pytest.raises(ModelLoadError, match=r"w.bin ends after 9 of 24000 B"):
        from_onnx(external(tmp_path, "w.bin"))


def test_a_weight_of_50_gb_takes_no_memory(tmp_path: Path) -> None:
    path = external(tmp_path, "w.bin", elements=25 * 10**9)
    (weight,) = read_model(path).graph.weights.values()
    assert (weight.nbytes, weight.read()) == (10**11, None)
    assert sum(p.nbytes for p in from_onnx(path).parameters()) == 10**11


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("/etc/hostname", "must be relative"),
        ("C:\\weights.bin", "must be relative"),
        ("../w.bin", "leaves the model's folder"),
        ("a\\..\\..\\w.bin", "leaves the model's folder"),
        ("", "is no path"),
        ("a\0b", "is no path"),
        ("out", "a link leads out of the model's folder"),
        ("pipe", "no regular file"),
        ("folder", "no regular file"),
        ("loop", "resolved|levels of symbolic links"),
        ("x" * 100_000, "File name too long"),
    ],
)
def test_a_path_of_external_data_stays_in_the_models_folder(
    tmp_path: Path, location: str, why: str
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"x")
    (folder / "out").symlink_to(tmp_path / "secret")
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    with pytest.raises(ModelLoadError, match=why) as caught:
        from_onnx(external(folder, location), weights=False)
    assert len(str(caught.value)) < 500


def test_a_link_may_lead_to_where_the_model_itself_lies(tmp_path: Path) -> None:
    # As in the Hugging Face cache: both are links into one folder of downloads.
    blobs, folder = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    folder.mkdir()
    external(blobs, "w.bin", elements=2)
    (blobs / "1").write_bytes(np.ones(2, np.float32).tobytes())
    (folder / "w.bin").symlink_to(blobs / "1")
    (folder / "model.onnx").symlink_to(blobs / "model.onnx")
    assert from_onnx(folder / "model.onnx")(torch.zeros(2)).tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("entries", "why"),
    [({"offset": "-1"}, "offset is '-1'"), ({"length": "3"}, "3 B are stored, 24000 B are needed")],
)
def test_places_in_a_file_are_checked(tmp_path: Path, entries: dict[str, Any], why: str) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 24_000)
    with pytest.raises(ModelLoadError, match=why):
        from_onnx(external(tmp_path, "w.bin", **entries))


# -- the module


def test_names_that_python_or_torch_use_are_changed() -> None:
    names = ["graph/if/Relu", "forward", "code", "self", "a.b", "a", "", "weight/" * 40, "9"]
    nodes, at = [], "self"
    for index, name in enumerate(names):
        nodes.append(helper.make_node("Relu", [at], [f"v{index}"], name=name))
        at = f"v{index}"
    proto = model(nodes, ("self",), (at,))
    module = build_module(as_model(proto, "m"), weights=True)
    assert module(X).tolist() == [0.0, 3.0]
    assert [n.target for n in module.graph.nodes if n.op == "call_module"][:6] == [
        *("graph_2.if_.Relu", "forward_2", "code_2", "self_", "a.b", "a_2"),
    ]


def test_inputs_of_like_names_stay_apart() -> None:
    proto = model([node("Sub", "a.b a_b", "y")], ("a.b", "a_b"))
    module = build_module(as_model(proto, "m"), weights=True)
    assert module(a_b=X, a_b_2=2 * X).tolist() == (-X).tolist()


def test_a_module_is_copied_pickled_and_trained() -> None:
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    module = build_module(
        as_model(model([node("Mul", "x w", "a"), node("Relu", "a", "y")], weights=[weight]), "m"),
        weights=True,
    )
    copied, loaded = copy.deepcopy(module), pickle.loads(pickle.dumps(module))
    module(X).sum().backward()
    assert [p.grad.tolist() for p in module.parameters() if p.grad is not None] == [[0.0, 3.0]]
    for other in (copied, loaded):
        assert other(X).tolist() == [0.0, 3.0]
        assert [p.grad for p in other.parameters()] == [None]
        other.load_state_dict(module.state_dict())
        assert not other.eval().training


def test_nested_graphs_run() -> None:
    chain = graph([node("Relu", "x", "z")], (), ("z",))
    zero = graph([node("Identity", "x", "e")], (), ("e",))
    for depth in range(25):
        taken = node("If", "c", f"o{depth}", then_branch=chain, else_branch=zero)
        chain = graph([taken], (), (f"o{depth}",))
    last = node("If", "c", "y", then_branch=chain, else_branch=zero)
    proto = model([last], ("x", value("c", (), TensorProto.BOOL)))
    assert run(proto, X, torch.tensor(True)).tolist() == [0.0, 3.0]


def test_element_types_have_the_numbers_of_the_installed_onnx() -> None:
    for name, number in TensorProto.DataType.items():
        assert ElementType[name] == number


def test_another_name_that_is_taken_or_of_nothing_is_refused_in_one_line() -> None:
    weights = [numpy_helper.from_array(np.ones(2, np.float32), name) for name in ("w", "taken")]
    twice = [node("Identity", "w", "taken"), node("Add", "x w", "y")]
    with pytest.raises(ModelLoadError, match="'taken', which is given already"):
        as_model(model(twice, weights=weights), "model.onnx")

    of_nothing = as_model(model([node("Identity", "", "t"), node("Relu", "x", "y")]), "model.onnx")
    assert [n.op for n in of_nothing.graph.nodes] == ["Identity", "Relu"]


def test_a_weight_under_another_name_is_the_same_weight() -> None:
    proto = model(
        [node("Identity", "w", "again"), node("Add", "x w", "t"), node("Mul", "t again", "y")],
        weights=[numpy_helper.from_array(np.array([1.0, 2.0], np.float32), "w")],
    )
    module = build_module(as_model(proto, "model.onnx"), weights=True)
    assert module(X).tolist() == [-1.0, 10.0]
    assert [p.tolist() for p in module.parameters()] == [[1.0, 2.0]]
