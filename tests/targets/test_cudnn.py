"""Convolution workspaces: asked of cuDNN for a GPU that is only described."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphmem
from graphmem import devices
from graphmem.devices import GPUS, Gpu
from graphmem.options import Target
from graphmem.schedule import Scratch
from graphmem.targets import Call, Context, layouts, rule_of, stages
from graphmem.targets.context import active
from graphmem.targets.cuda.cudnn import (
    backend,
    convolution,
    formats,
    library,
    operands,
    plans,
    table,
)
from graphmem.targets.cuda.cudnn.backend import CudnnError, Kind, Session
from graphmem.targets.cuda.cudnn.formats import Format, dense_strides
from graphmem.targets.cuda.cudnn.library import Library, Missing
from graphmem.targets.cuda.cudnn.plans import Mode, Operand, Problem, largest_workspace, workspace

aten = torch.ops.aten
HALF, BF16 = torch.float16, torch.bfloat16
A100, T4, H100 = devices.find("A100-80GB"), devices.find("T4"), devices.find("H100-80GB")
TRUTH = Path(__file__).resolve().parents[3] / "shared" / "truth"


@pytest.fixture(scope="module")
def cudnn() -> Library:
    found = library.load()
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    return found


@pytest.fixture
def cudnn_9_24(cudnn: Library) -> Library:
    if cudnn.version != 92400:
        pytest.skip(f"{cudnn.name} may ask for other bytes than 9.24.0")
    return cudnn


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Context]:
    """As where no library is installed, in a context of its own."""
    gone = Missing("no cuDNN library is installed")
    monkeypatch.setattr(convolution, "load", lambda: gone)
    context = Context(A100)
    with active(context):
        yield context


def problem(
    kind: Kind = Kind.FORWARD, dtype: torch.dtype = torch.float32, **changed: Any
) -> Problem:
    """A 3 x 3 convolution of 64 to 64 channels, [8, 64, 56, 56]."""
    image = Operand((8, 64, 56, 56), dense_strides((8, 64, 56, 56), Format.CONTIGUOUS), 32)
    weight = Operand((64, 64, 3, 3), dense_strides((64, 64, 3, 3), Format.CONTIGUOUS), 32)
    plain = Problem(kind, image, weight, image, (1, 1), (1, 1), (1, 1), dtype)
    return replace(plain, **changed)


def empty(*size: int, dtype: torch.dtype = torch.float32, last: bool = False) -> Tensor:
    form = torch.channels_last if last else torch.contiguous_format
    return torch.empty(size, dtype=dtype, device="meta").to(memory_format=form)


def _spread(*tensors: Tensor) -> list[Any]:
    return [operands.spread(layouts(tensor)) for tensor in tensors]


def scratch_of(
    input: Tensor,
    weight: Tensor,
    gpu: Gpu = A100,
    *,
    stride: int = 1,
    padding: int = 0,
    transposed: bool = False,
    groups: int = 1,
    dilation: int = 1,
    bias: bool = False,
) -> tuple[Scratch, Scratch]:
    """What the rules say of a convolution and of its backward."""
    dims = input.dim() - 2
    rest = (
        None,
        [stride] * dims,
        [padding] * dims,
        [dilation] * dims,
        transposed,
        [0] * dims,
        groups,
    )
    output = aten.convolution.default(input, weight, *rest)
    if formats.of_convolution(*_spread(input, weight)) is Format.CHANNELS_LAST and dims == 2:
        output = output.to(memory_format=torch.channels_last)  # as on CUDA
    forward = rule_of(aten.convolution.default, Target.CUDA)
    backward = rule_of(aten.convolution_backward.default, Target.CUDA)
    assert forward is not None
    assert backward is not None
    grad = (torch.empty_like(output), input, weight, *rest, [True, True, bias])
    return (
        stages(forward(Call(layouts((input, weight, *rest)), {}, layouts(output), gpu))),
        stages(backward(Call(layouts(grad), {}, None, gpu))),
    )


# -- asking the library


@pytest.mark.parametrize(
    ("gpu", "asked", "nbytes"),
    [
        # Winograd: transformed weights of 5 x 5, 64 * 64 * 25 * 4 B, and 256 B.
        (T4, problem(), 64 * 64 * 25 * 4 + 256),
        # Tensor cores: the image [8, 64, 56, 56] and the weight, channels last in fp32.
        (A100, problem(), 6_570_000),
        (A100, problem(Kind.DATA_GRADIENT), 12_992_528),
        (A100, problem(Kind.FILTER_GRADIENT), 14_320_151),
        # Without TF32 the plan of the T4.
        (A100, problem(allow_tf32=False), 64 * 64 * 25 * 4 + 256),
        (A100, problem(dtype=HALF), 6_496_272),
        (H100, problem(dtype=BF16), 6_496_403),
        (A100, problem(dtype=torch.float64), 0),
    ],
)
def test_cudnn_9_24_asks_for(cudnn_9_24: Library, gpu: Gpu, asked: Problem, nbytes: int) -> None:
    assert workspace(cudnn_9_24, gpu, asked) == nbytes


def test_no_engine_runs_bfloat16_on_a_t4(cudnn: Library) -> None:
    assert workspace(cudnn, T4, problem(dtype=BF16)) is None


def test_every_known_gpu_gets_an_answer(cudnn: Library) -> None:
    answered = [gpu for gpu in GPUS if gpu.sm >= cudnn.oldest_sm]

    assert len(answered) > 40
    for gpu in answered:
        assert workspace(cudnn, gpu, problem(dtype=HALF)) is not None, gpu.name


def test_benchmark_mode_tries_larger_workspaces(cudnn: Library) -> None:
    asked = problem(dtype=HALF)
    chosen = workspace(cudnn, A100, asked)
    largest = largest_workspace(cudnn, A100, asked)

    assert chosen is not None
    assert chosen <= largest <= A100.capacity_bytes
    small = replace(A100, capacity_bytes=largest - 1)
    assert largest_workspace(cudnn, small, asked) < largest


def test_deterministic_mode_leaves_engines_out(cudnn: Library) -> None:
    asked = problem(Kind.FILTER_GRADIENT, allow_tf32=False)
    with Session(cudnn) as session:
        device, graph = plans._device(cudnn, T4), plans._graph(session, asked)
        configs = list(plans._configs(session, graph, device, Mode.INSTANT))
        free = [plans._left_out(session, config, asked) for config in configs]
        strict = replace(asked, deterministic=True)
        bound = [plans._left_out(session, config, strict) for config in configs]

    assert any(bound)
    assert sum(bound) > sum(free)


def test_one_question_is_asked_once(cudnn: Library) -> None:
    asked = problem(dtype=HALF, padding=(2, 2), dilation=(2, 2))
    workspace(cudnn, A100, asked)
    before = workspace.cache_info()
    workspace(cudnn, replace(A100), replace(asked))

    assert workspace.cache_info().hits == before.hits + 1
    assert workspace.cache_info().misses == before.misses


def test_a_refusal_is_told_in_cudnns_words(cudnn: Library) -> None:
    with Session(cudnn) as session, pytest.raises(CudnnError, match="finalize: status"):
        session.make(Kind.DEVICE).set(2702, backend.CHAR, b"{").finalized()


# -- finding the library


def test_the_library_of_a_cuda_build_of_torch_is_found() -> None:
    if torch.version.cuda is None:
        pytest.skip("a CPU build of torch")
    found = library.load()

    assert isinstance(found, Library)
    assert found.version == torch.backends.cudnn.version()
    assert found.name.startswith("cuDNN 9.")


def test_without_the_wheel_the_user_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_folders", lambda: iter(()))
    found = library.load.__wrapped__()

    assert isinstance(found, Missing)
    assert "pip install 'graphmem[cudnn]'" in found.reason


def test_without_cublaslt_cudnn_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / library.NAMES[0]).touch()
    monkeypatch.setattr(library, "_folders", lambda: iter([tmp_path]))
    monkeypatch.setattr(library, "_wheel", lambda package: iter(()))
    found = library.load.__wrapped__()

    assert isinstance(found, Missing)
    assert "cuBLASLt" in found.reason


def test_an_old_library_is_not_asked(cudnn: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "OLDEST", cudnn.version + 1)
    found = library.load.__wrapped__()

    assert isinstance(found, Missing)
    assert cudnn.name in found.reason


# -- the operators


def test_a_convolution_takes_what_cudnn_asks_for(cudnn: Library) -> None:
    forward, backward = scratch_of(empty(8, 64, 56, 56), empty(64, 64, 3, 3), padding=1)

    assert forward == ((workspace(cudnn, A100, problem()),),)
    assert backward == (
        (workspace(cudnn, A100, problem(Kind.DATA_GRADIENT)),),
        (workspace(cudnn, A100, problem(Kind.FILTER_GRADIENT)),),
    )


def test_the_operand_that_is_not_channels_last_is_copied(no_library: Context) -> None:
    image, weight = empty(8, 64, 56, 56, dtype=HALF, last=True), empty(64, 64, 3, 3, dtype=HALF)
    forward, backward = scratch_of(image, weight, padding=1)

    image_bytes, weight_bytes = 8 * 64 * 56 * 56 * 2, 64 * 64 * 9 * 2
    assumed = 2 * image_bytes + weight_bytes
    assert forward == ((weight_bytes, assumed),)
    assert backward == ((weight_bytes, assumed), (assumed,))
    # The weight channels last, the image not: the image is copied.
    forward, backward = scratch_of(
        image.contiguous(), weight.to(memory_format=torch.channels_last), padding=1
    )
    assert forward == ((image_bytes, assumed),)
    assert backward == ((image_bytes, assumed), (image_bytes, assumed))


def test_a_transposed_1d_input_is_copied_for_the_whole_call(no_library: Context) -> None:
    image = torch.empty(8, 100, 64, device="meta").transpose(1, 2)
    forward, backward = scratch_of(image, empty(32, 64, 5))

    copy = 8 * 64 * 100 * 4
    assumed = copy + 32 * 64 * 5 * 4 + 8 * 32 * 96 * 4
    assert forward == ((copy, assumed),)
    assert backward == ((copy, assumed), (copy, assumed))
    # PyTorch's own depthwise kernel takes nothing else.
    assert scratch_of(image, empty(64, 1, 5), groups=64) == (((copy,),), ((copy,),))


def test_a_transposed_convolution_is_a_data_gradient(cudnn: Library) -> None:
    image, weight = empty(8, 64, 28, 28), empty(64, 32, 2, 2)
    forward, backward = scratch_of(image, weight, stride=2, transposed=True)

    def operand(*size: int) -> Operand:
        return Operand(size, dense_strides(size, Format.CONTIGUOUS), 32)

    def asked(kind: Kind) -> int | None:
        x, w, y = operand(8, 32, 56, 56), operand(64, 32, 2, 2), operand(8, 64, 28, 28)
        return workspace(cudnn, A100, Problem(kind, x, w, y, (0, 0), (2, 2), (1, 1), torch.float32))

    assert forward == stages((asked(Kind.DATA_GRADIENT) or 0,))
    both = (asked(Kind.FORWARD) or 0,), (asked(Kind.FILTER_GRADIENT) or 0,)
    assert backward == stages(both)


def test_the_address_of_a_slice_is_aligned_to_less() -> None:
    tensor = layouts(torch.empty(9, device="meta")[1:])

    assert convolution._alignment(tensor) == 4
    assert convolution._alignment(tensor._replace(offset=8)) == 32
    assert convolution._alignment(tensor._replace(offset=0)) == 32


def test_bfloat16_on_a_t4_runs_in_columns() -> None:
    image, weight = empty(8, 64, 56, 56, dtype=BF16), empty(64, 64, 3, 3, dtype=BF16)
    columns = 64 * 9 * 56 * 56 * 2

    assert scratch_of(image, weight, T4, padding=1) == (((columns,),), ((columns,),))


def test_the_gradient_of_the_bias_is_a_sum_after_the_others(no_library: Context) -> None:
    few, many = empty(8, 64, 56, 56), empty(64, 64, 256, 256)
    without, sums = [
        [scratch_of(image, empty(64, 64, 3, 3), padding=1, bias=bias)[1] for image in (few, many)]
        for bias in (False, True)
    ]

    # 64 sums of 25,088 values: 512 threads read 49 each, too few to split them.
    assert sums[0] == without[0]
    # Of 4,194,304 values, 8,192 a thread: 32 blocks for each sum, so that a thread reads 256.
    assert sums[1] == (*without[1], (64 * 32 * 4, 64 * 4))


def test_own_kernels_sum_the_gradient_of_the_bias_too() -> None:
    image, weight = empty(4, 64, 1024, 1024), empty(64, 64, 3, 3)
    sums = (64 * 32 * 4, 64 * 4)  # as above
    _, depthwise = scratch_of(image, empty(64, 1, 3, 3), padding=1, groups=64, bias=True)
    with torch.backends.cudnn.flags(enabled=False):
        _, columns = scratch_of(image, weight, padding=1, bias=True)
        _, groups = scratch_of(image, empty(64, 32, 3, 3), padding=1, groups=2, bias=True)
        _, dilated = scratch_of(image, weight, padding=2, dilation=2, bias=True)

    assert depthwise == (sums,)
    held = 64 * 9 * 1024 * 1024 * 4
    assert columns == ((held, *sums),)
    assert groups[0][-2:] == (32 * 32 * 4, 32 * 4)  # a group of 32 channels
    # One sample after another, each with a result of its own: 2,048 values a thread.
    assert dilated == ((held, 64 * 4, 64 * 8 * 4, 64 * 4),)


def test_an_empty_batch_takes_nothing() -> None:
    assert scratch_of(empty(0, 64, 56, 56), empty(64, 64, 3, 3)) == ((), ())


def test_heuristics_are_b_where_the_environment_says_so() -> None:
    assert convolution.heuristics_mode({}) is Mode.INSTANT
    assert convolution.heuristics_mode({"TORCH_CUDNN_USE_HEURISTIC_MODE_B": "1"}) is Mode.B
    assert convolution.heuristics_mode({"TORCH_CUDNN_USE_HEURISTIC_MODE_B": "0"}) is Mode.INSTANT


def test_settings_of_the_moment_are_part_of_the_question(cudnn: Library) -> None:
    image, weight = empty(8, 64, 56, 56), empty(64, 64, 3, 3)
    exact = workspace(cudnn, A100, problem(allow_tf32=False))
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        forward, _ = scratch_of(image, weight, padding=1)

    assert forward == ((exact,),)
    assert exact != workspace(cudnn, A100, problem())


def test_benchmark_takes_the_largest_at_a_shapes_first_call(cudnn: Library) -> None:
    image, weight = empty(8, 64, 56, 56, dtype=HALF), empty(64, 64, 3, 3, dtype=HALF)
    asked = problem(dtype=HALF)
    context = Context(A100)
    with active(context), torch.backends.cudnn.flags(enabled=True, benchmark=True):
        first, _ = scratch_of(image, weight, padding=1)
        second, _ = scratch_of(image, weight, padding=1)

    assert first == ((largest_workspace(cudnn, A100, asked),),)
    assert second == ((workspace(cudnn, A100, asked),),)
    assert any("benchmark" in unknown.what for unknown in context.unknown)


def test_attentions_backward_sums_in_fp32() -> None:
    query = torch.empty(2, 4, 128, 64, dtype=BF16, device="meta")
    rule = rule_of(aten._scaled_dot_product_cudnn_attention_backward.default, Target.CUDA)
    assert rule is not None
    dense = stages(rule(Call((*layouts((query, query)),), {}, None, H100)))
    turned = stages(rule(Call((*layouts((query.mT.contiguous().mT, query)),), {}, None, H100)))

    sums = 2 * 4 * 128 * (64 + 1) * 4  # the accumulator of dq, and a sum for each row
    assert dense == ((sums,),)
    assert turned == ((2 * 4 * 128 * 64 * 2, sums),)


# -- without a library


def test_without_a_library_the_report_says_so(no_library: Context) -> None:
    scratch_of(empty(2, 8, 9, 9), empty(16, 8, 3, 3))

    (unknown,) = no_library.unknown
    assert "no cuDNN library is installed" in unknown.what
    assert "nine of ten" in unknown.assumed


def test_an_unseen_convolution_takes_its_operands_bytes(no_library: Context) -> None:
    forward, _ = scratch_of(empty(2, 8, 9, 9), empty(16, 8, 3, 3))

    assert forward == ((4 * (2 * 8 * 81 + 16 * 8 * 9 + 2 * 16 * 49),),)


def test_a_seen_convolution_takes_what_was_seen(no_library: Context) -> None:
    forward, backward = scratch_of(empty(8, 512, 7, 7), empty(512, 512, 3, 3), padding=1)

    assert forward == ((26_218_496,),)
    assert backward == ((26_216_448,), (42_467_328,))


def test_a_gpu_that_the_library_left_behind_is_told(cudnn: Library) -> None:
    old = replace(A100, name="GTX 980", compute_capability=(5, 2))
    modern = replace(cudnn, cuda=13000)

    assert modern.oldest_sm == 75
    assert "has no kernels for GTX 980" in table.unknown(modern, old).what


@pytest.mark.skipif(not TRUTH.is_dir(), reason="needs ../shared/truth")
def test_the_table_holds_what_the_snapshots_show() -> None:
    kinds = {
        "conv_fwd": Kind.FORWARD,
        "conv_bwd_data": Kind.DATA_GRADIENT,
        "conv_bwd_filter": Kind.FILTER_GRADIENT,
    }
    with (TRUTH / "workspaces.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["dtype"] == "fp32" and row["N"]]
    checked = 0
    for row in rows:
        kind = kinds.get(row["op"].split()[0])
        if kind is None or not row["scratch_bytes"] or row["kind"] != "cudnn_workspace":
            continue
        n, c, h, w, k, side, stride = (
            int(row[name]) for name in ("N", "Cin", "H", "W", "Cout", "k", "stride")
        )
        padding = side // 2 if row["pad"] == "same" else int(row["pad"])
        key = (kind, (n, c, h, w), (k, c, side, side), stride, padding)
        assert table._seen()[key] == int(row["scratch_bytes"]), row["op"]
        checked += 1
    assert checked > 40


# -- in a trace


class Images(nn.Module):
    """Two convolutions and a mean, on [4, 3, 32, 32]."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x)).mean()


def test_a_report_names_the_library_that_was_asked(cudnn: Library) -> None:
    report = graphmem.analyze(Images(), graphmem.spec("4x3x32x32"), device="T4")
    kernels = {kernel.op: kernel.kernel for kernel in report.kernels}

    assert kernels["aten::convolution"] == kernels["aten::convolution_backward"] == cudnn.name


def test_the_gradients_of_a_convolution_come_in_turn(no_library: Context) -> None:
    subject = Images(), graphmem.spec("4x3x32x32")
    report = graphmem.analyze(*subject, steps=1, timeline=True)
    graph = graphmem.graph(*subject, steps=1)

    found = [point for point in report.timeline or () if "convolution_backward" in point.op]
    assert [point.module for point in found] == ["second"] * 3 + ["first"] * 2  # images need none
    of_input, of_weight, of_bias = (point.allocated_bytes for point in found[:3])
    image, weight = 4 * 16 * 32 * 32 * 4, 16 * 16 * 9 * 4
    workspace = 2 * image + weight  # without a library
    assert of_weight - of_input == weight  # which did not exist before
    assert of_weight - of_bias == workspace - 512  # the sum has no scratch

    calls = [n.meta["operation"] for n in graph.nodes if "convolution_backward" in str(n.target)]
    assert [len(call.allocates) for call in calls] == [3, 2]
    assert calls[0].scratch == ((workspace,), (workspace,))


@pytest.mark.skipif(not TRUTH.is_dir(), reason="needs ../shared/truth")
def test_resnet18s_recorded_step_peaks_as_predicted_to_the_byte(
    no_library: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot resnet18-b8-train-fp32-sgdm, with its own version's workspaces.

    It is of torch 2.0.0.dev, whose cuBLAS workspaces are of 4 MiB in the snapshot.
    """
    torchvision = pytest.importorskip("torchvision")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:1")
    model = torchvision.models.resnet18(weights=None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    images, labels = torch.empty(8, 3, 224, 224), torch.zeros(8, dtype=torch.int64)

    def step() -> None:
        output = model(images)
        loss = nn.functional.cross_entropy(output, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    report = graphmem.record(step, steps=1, device="A100-80GB")
    assert report.peak.requested_bytes == 303_624_744
