"""A session with the CUDA provider, beside what ONNX Runtime's own provider takes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import ModelProto

from graphmem.errors import UnsupportedOpError
from graphmem.options import Mode, Options
from graphmem.serving.on_cuda import OnCuda, Shortage
from graphmem.serving.session import Served, serve
from graphmem.serving.settings import Provider, ServeSettings, with_options
from graphmem.sources.inputs import InputRequest
from graphmem.sources.onnx.runtime import optimize
from graphmem.targets.cuda.cudnn.library import Library, load
from tests.serving.cuda_graphs import convolution, half_precision, perceptron, two_devices

MIB = 1 << 20
pytestmark = pytest.mark.skipif(
    not optimize.is_installed() or optimize.version() != "1.31.1",
    reason="measured with ONNX Runtime 1.31.1",
)


def served(
    folder: Path, model: ModelProto, shape: str, *options: str, of: Options | None = None
) -> Served:
    path = folder / "model.onnx"
    onnx.save(model, path)
    settings = with_options(ServeSettings(provider=Provider.CUDA), options)
    request = InputRequest(inputs=(f"x={shape}",))
    return serve(str(path), request, of or Options(mode=Mode.INFERENCE), settings)


def cuda(session: Served) -> OnCuda:
    assert session.cuda is not None
    return session.cuda


def arena(session: Served, run: int) -> list[tuple[str, int, int, int]]:
    """What the profile shows of the kernels of the device."""
    return [
        (m.op, m.requested, m.in_use, m.held)
        for m in session.runs[run].moments
        if m.node not in cuda(session).host
    ]


def test_weights_and_inputs_lie_in_the_arena_before_the_first_kernel(tmp_path: Path) -> None:
    session = served(tmp_path, perceptron(), "1000x256")
    # three weights of 262,144, the input and m0's result of 1,024,000 each
    assert arena(session, 0) == [
        ("MatMul", 2834432, 2883584, 3145728),
        ("Relu", 2834432, 2883584, 3145728),
        ("MatMul", 3858432, 3907584, 7340032),
        ("Sigmoid", 3858432, 3907584, 7340032),
        ("Add", 4882432, 4931584, 7340032),
        ("MatMul", 3858432, 3858432, 7340032),
        ("Reshape", 4882432, 4931584, 7340032),
    ]


def test_later_runs_have_a_pattern_behind_the_input(tmp_path: Path) -> None:
    session = served(tmp_path, perceptron(), "1000x256")
    # weights, input, a block of 3 * 1,024,000; then the two outputs
    assert arena(session, 1) == [
        *[(op, 4882432, 6004736, 7340032) for op in ("MatMul", "Relu", "MatMul")],
        *[(op, 4882432, 6004736, 7340032) for op in ("Sigmoid", "Add")],
        ("MatMul", 5906432, 7077888, 7340032),
        ("Reshape", 6930432, 8101888, 15728640),
    ]


@pytest.mark.parametrize(
    ("option", "in_use", "held"),
    [
        ("arena_extend_strategy=kSameAsRequested", 6930432, 7954432),
        ("session.use_device_allocator_for_initializers=1", 8126464, 8126464),
        ("gpu_mem_limit=10MiB", 8101888, 10485760),
    ],
)
def test_options_of_the_arena(tmp_path: Path, option: str, in_use: int, held: int) -> None:
    later = served(tmp_path, perceptron(), "1000x256", option).runs[1]
    assert (later.requested, later.in_use, later.held) == (6930432, in_use, held)


def test_a_limit_that_is_too_small_ends_the_run_where_it_did(tmp_path: Path) -> None:
    session = served(tmp_path, perceptron(), "1000x256", "gpu_mem_limit=5000000")
    # "Non-zero status code returned while running Add node. Name:'add'"
    assert cuda(session).limited == Shortage(1024000, run=0, moment=4)
    assert session.runs[0].moments[4].node == "add"
    assert session.runs[1].held == 15728640  # what it would take


def test_nodes_without_a_kernel_stay_on_the_host_and_values_are_copied(tmp_path: Path) -> None:
    session = served(tmp_path, two_devices(), "1000x64")
    assert cuda(session).host == {"acos", "div", "mul", "MemcpyToHost/a"}
    assert arena(session, 0) == [
        ("Exp", 512000, 512000, MIB),
        ("MemcpyFromHost", 768000, 768000, MIB),
        ("Add", 1024000, 1048576, MIB),
        ("Shape", 768000, 792576, MIB),
        ("Reshape", 512000, 536576, MIB),
        ("Tanh", 768000, 792576, MIB),
    ]
    assert [held for *_, held in arena(session, 1)] == [*[MIB] * 5, 3 * MIB]


def test_half_precision_stays_what_it_is(tmp_path: Path) -> None:
    session = served(tmp_path, half_precision(), "1000x256")
    # the weight's 131,072, the input and a result of 512,000; then the output, in the end
    assert arena(session, 0) == [
        ("MatMul", 1155072, 1560576, 3 * MIB),
        ("Relu", 1155072, 1560576, 3 * MIB),
        ("MatMul", 1667072, 2072576, 3 * MIB),
    ]


def test_the_order_of_weights_is_stated_with_what_it_changes(tmp_path: Path) -> None:
    session = served(tmp_path, perceptron(), "1000x256")
    assert cuda(session).held == (15728640, 15728640)  # weights of one size: it changes nothing
    assert [u.where for u in session.unknown] == ["3 weights"]


def test_what_is_not_known_fails_where_it_must_not(tmp_path: Path) -> None:
    strict = Options(mode=Mode.INFERENCE, strict=True)
    with pytest.raises(UnsupportedOpError, match="the order in which ONNX Runtime takes weights"):
        served(tmp_path, perceptron(), "1000x256", of=strict)


def test_a_convolution_has_the_workspace_that_cudnn_asks_for(tmp_path: Path) -> None:
    session = served(tmp_path, convolution(pads=[1, 1, 1, 1]), "8x64x56x56")
    low, high = cuda(session).held
    assert low <= max(run.held for run in session.runs) <= high
    (note,) = (u for u in session.unknown if u.what.startswith("the workspaces"))
    assert f"{low:,} to {high:,} bytes" in note.assumed
    library = load()
    assert (library.name if isinstance(library, Library) else library.reason) in note.what


def test_a_gpu_without_room_is_said_to_be_full(tmp_path: Path) -> None:
    named = Options(mode=Mode.INFERENCE, device="T4")
    session = served(tmp_path, perceptron(), "4000000x256", of=named)
    # each result has 4,096,000,000 B: five of them, in regions, on a T4 of 15.8 GB
    full = cuda(session).full
    assert full is not None
    assert full.nbytes == 4000000 * 256 * 4
