"""Files that are no models, or bad ones: one clear line, in bounded time and memory."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from graphmem.errors import GraphmemError
from graphmem.sources.inputs import InputRequest
from graphmem.sources.onnx.arguments import arguments_of
from graphmem.sources.onnx.assumed import Assumed
from graphmem.sources.onnx.module import build_module
from graphmem.sources.onnx.read import read_model
from graphmem.sources.onnx.subject import from_onnx
from tests.sources.onnx.graphs import graph, model, node, value, write

SEEDS = Path(__file__).parent / "seeds"
MOST_SECONDS = 20.0  # of CPU time, on a slow machine
MOST_BYTES = 1 << 30  # of growth: a bug that follows a size in a file takes far more


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """Fail a test that takes much time or memory."""
    seconds, peak = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.process_time() - seconds < MOST_SECONDS
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024 < MOST_BYTES


def refused(path: object, expected: str) -> None:
    with pytest.raises(GraphmemError, match=expected) as caught:
        from_onnx(str(path), weights=False)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1_000


WHOLE = model(
    [node("MatMul", "x w", "a"), node("Relu", "a", "y")],
    (value("x", ("n", 4)),),
    (value("y", ("n", 2)),),
    [numpy_helper.from_array(np.ones((4, 2), np.float32), "w")],
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "the file is empty"),
        (b"This is not a model, but a text.\n" * 50, "not an ONNX model"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "not an ONNX model"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (WHOLE.SerializeToString()[:-5], "truncated or damaged"),
        (WHOLE.SerializeToString()[:20], "truncated or damaged"),
        (b"\x08\x08", "it has no graph"),
        (b"\0" * 100, "not an ONNX model"),
    ],
)
def test_a_file_that_is_no_model(tmp_path: Path, data: bytes, expected: str) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    refused(path, expected)


def test_what_is_no_file(tmp_path: Path) -> None:
    refused(tmp_path, "is a folder; name the .onnx file in it")
    refused(tmp_path / "no.onnx", "no such file")
    refused("/dev/zero", "no regular file")
    refused("a\0b", "null byte|no such file")
    refused("x" * 10_000, "name too long|no such file")


def test_a_file_larger_than_a_protobuf(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.truncate(3 << 30)
    refused(path, "more than the 2 GiB of a protobuf")


LONG = "n" * 1_000_000


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("Relu", "a", "b"), node("Neg", "b", "a")], "is in a cycle"),
        ([node("Relu", "a", "a")], "node 'Relu' \\(Relu\\) is in a cycle"),
        ([node("Relu", "q", "y")], "reads 'q', which no node, input or initializer gives"),
        ([node("Relu", "x", "z")], "output 'y' is given by no node"),
        ([node("Relu", "x", "y"), node("Neg", "x", "y")], "'Relu' .* and 'Neg' .* both give 'y'"),
        ([node("Relu", "x", "x")], "gives 'x', which is an input"),
        ([node("Relus", "x", "y")], "the operator has no rule in opset 17"),
        ([node("Constant", "", "y")], "has no value"),
        ([node("Relu", f"x{LONG}", "y")], "reads 'xnnn"),
        ([node(f"R{LONG}", "x", "y")], "the operator has no rule"),
    ],
)
def test_a_graph_that_contradicts_itself(
    tmp_path: Path, nodes: list[onnx.NodeProto], expected: str
) -> None:
    refused(write(tmp_path, model(nodes)), expected)


def test_a_long_cycle_names_a_node_in_it(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(20_000)
    ]
    nodes.append(helper.make_node("Relu", ["v20000"], ["v0"], name="back"))
    nodes.append(helper.make_node("Relu", ["v20000"], ["y"], name="after"))
    refused(write(tmp_path, model(nodes)), "node 'n0' .* reads what node 'back' .* gives")


def test_names_of_a_megabyte_are_read(tmp_path: Path) -> None:
    named = helper.make_node("Relu", [LONG], [f"{LONG}/y"], name="/".join("abc" * 100_000))
    proto = model([named], (value(LONG),), (f"{LONG}/y",))
    module = from_onnx(write(tmp_path, proto), weights=False)
    assert max(len(name) for name, _ in module.named_modules()) < 2_000


def weighted(dims: list[int], element: int = TensorProto.FLOAT, **data: Any) -> onnx.ModelProto:
    weight = TensorProto(name="w", data_type=element, dims=dims, **data)
    return model([node("Add", "x w", "y")], weights=[weight])


@pytest.mark.parametrize(
    ("proto", "expected"),
    [
        (weighted([2**62]), "more than memory can hold"),
        (weighted([2**62, 0]), "more than memory can hold"),
        (weighted([2**40, 2**40]), "more than memory can hold"),
        (weighted([-3]), "a dimension of -3 is negative"),
        (weighted([2], raw_data=b"123"), "values don't fit its shape"),
        (weighted([3], float_data=[1.0]), "values don't fit its shape"),
        (weighted([2], element=99), "element type 99 is none of ONNX's"),
        (weighted([2], element=0), "has no element type"),
    ],
)
def test_a_weight_that_can_not_be(tmp_path: Path, proto: onnx.ModelProto, expected: str) -> None:
    refused(write(tmp_path, proto), expected)


def test_sparse_indices_outside_of_the_shape(tmp_path: Path) -> None:
    values = numpy_helper.from_array(np.array([5], np.float32), "w")
    where = numpy_helper.from_array(np.array([9], np.int64), "i")
    sparse = helper.make_sparse_tensor(values, where, [2])
    refused(
        write(tmp_path, model([node("Add", "x w", "y")], sparse_initializer=[sparse])), "indices"
    )


def test_a_sparse_weight_of_a_terabyte_is_not_made_dense(tmp_path: Path) -> None:
    values = numpy_helper.from_array(np.array([5], np.float32), "w")
    where = numpy_helper.from_array(np.array([9], np.int64), "i")
    sparse = helper.make_sparse_tensor(values, where, [1 << 38])
    path = write(tmp_path, model([node("Add", "x w", "y")], sparse_initializer=[sparse]))
    assert [p.device.type for p in from_onnx(path, weights=False).parameters()] == ["meta"]


def test_a_list_of_many_numbers_is_bounded(tmp_path: Path) -> None:
    many = b"\x01" * 17_000_000  # written by hand: protobuf would take eight times as much
    attribute = _field(1, b"axes") + _field(8, many) + _varint(20 << 3) + b"\x07"
    squeeze = _field(1, b"x") + _field(2, b"y") + _field(4, b"Squeeze") + _field(5, attribute)
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\x02" + _field(7, _field(1, squeeze)))
    refused(path, "lists 17000000 values; 16777216 are read at most")


def _varint(number: int) -> bytes:
    low = number & 127
    return bytes([low | 128]) + _varint(number >> 7) if number > 127 else bytes([low])


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def test_a_hundred_nested_graphs_are_refused(tmp_path: Path) -> None:
    # Written by hand: protobuf itself refuses to.
    inner = graph([node("Relu", "x", "y")]).SerializeToString()
    for _ in range(100):
        attribute = _field(1, b"then_branch") + _field(6, inner) + _varint(20 << 3) + b"\x05"
        inner = _field(
            1, _field(1, b"c") + _field(2, b"y") + _field(4, b"If") + _field(5, attribute)
        )
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\x08\x0a" + _field(7, inner))
    refused(path, "nested deeper than the 32 that protobuf reads")


def test_an_operator_of_an_unknown_domain_is_read_and_refuses_to_run(tmp_path: Path) -> None:
    proto = model([node("Mystery", "x", "y", domain="com.acme")])
    module = from_onnx(write(tmp_path, proto))
    with pytest.raises(
        GraphmemError, match=r"'Mystery' \(com.acme.Mystery\): the operator has no rule"
    ):
        module(torch.ones(2))


def test_an_element_type_in_a_signature_that_onnx_does_not_have(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")], (value("x", ("n",), 99),))
    refused(write(tmp_path, proto), "element type 99")


def test_two_inputs_of_one_name(tmp_path: Path) -> None:
    refused(
        write(tmp_path, model([node("Relu", "x", "y")], ("x", "x"))), "two inputs are called 'x'"
    )


# -- mutated files


def seeds() -> list[bytes]:
    """The small files that are mutated; those that once broke something are among them."""
    return [path.read_bytes() for path in sorted(SEEDS.glob("*.onnx"))]


def used(data: bytes, path: Path) -> None:
    """Read and build whatever the bytes are; only the project's own errors may come."""
    path.write_bytes(data)
    message = ""
    try:
        read = read_model(str(path))
        arguments = arguments_of(read, InputRequest(default_dim=2))
        build_module(read, weights=False, missing=Assumed(arguments.sizes))
    except GraphmemError as error:
        message = str(error)
    assert "\n" not in message
    assert len(message) < 2_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutated")


def test_the_seeds_are_models() -> None:
    whole = [path for path in SEEDS.glob("*.onnx") if not path.name.startswith("broken")]
    assert whole
    for path in whole:
        assert from_onnx(path, weights=False).graph


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_mutated_files_are_read_or_refused(folder: Path, data: st.DataObject) -> None:
    mutated = bytearray(data.draw(st.sampled_from(seeds())))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        length = data.draw(st.sampled_from((0, 1, 1, 1, 2, 8)))
        mutated[at : at + length] = data.draw(st.binary(max_size=9))
        if not mutated:
            break
    used(bytes(mutated), folder / "mutated.onnx")


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=200))
@example(b"\x3a\x00")
@example(b"\x3a\x02\x0a\x00")
def test_any_bytes_are_read_or_refused(folder: Path, data: bytes) -> None:
    used(data, folder / "any.onnx")
