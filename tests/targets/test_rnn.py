"""LSTM, GRU and RNN as cuDNN runs them, with the arithmetic by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphmem
from graphmem import devices
from graphmem.errors import TraceError
from graphmem.options import Target
from graphmem.report import Report
from graphmem.targets import Call, layouts, result_rules, rule_of, stages
from graphmem.targets.cuda.rnn import weight_offsets
from graphmem.targets.cuda.rnn_sizes import Algorithm, Mode, Recurrent, dropout_state_bytes

aten = torch.ops.aten

A100, H200, T4 = (devices.find(name) for name in ("A100-80GB", "H200", "T4"))


def recurrent(mode: Mode, inputs: int, hidden: int, **others: Any) -> Recurrent:
    """One layer of fp32 in one direction, unless told otherwise."""
    lengths: list[int] | None = others.pop("lengths", None)
    steps, batch = others.pop("steps", 1), others.pop("batch", 1)
    values: dict[str, Any] = {
        "projection": 0,
        "layers": 1,
        "directions": 1,
        "itemsize": 4,
        "has_dropout": False,
    }
    return Recurrent(
        mode=mode,
        inputs=inputs,
        hidden=hidden,
        steps=steps,
        batch=batch,
        rows=sum(lengths) if lengths else steps * batch,
        packed=lengths is not None,
        **{**values, **others},
    )


# -- the sizes, beside libcudnn's answers


STANDARD, PERSISTENT = Algorithm.STANDARD, Algorithm.PERSISTENT

ANSWERS = [
    # GPU, layers, algorithm, training, then what libcudnn 9.24 answered: bytes of weights,
    # workspace, reserve
    (
        A100,
        recurrent(Mode.LSTM, 512, 512, layers=2, steps=64, batch=16, has_dropout=True),
        (STANDARD, True),
        (16_809_984, 32_113_024, 23_134_464),
    ),
    (
        H200,
        recurrent(Mode.LSTM, 512, 512, layers=2, steps=64, batch=16, has_dropout=True),
        (STANDARD, True),
        (16_809_984, 48_890_240, 23_134_464),
    ),
    (
        A100,
        recurrent(Mode.LSTM, 128, 256, steps=100, batch=32),
        (STANDARD, True),
        (1_581_056, 28_312_064, 16_384_256),
    ),
    (
        A100,
        recurrent(Mode.LSTM, 128, 256, steps=300, batch=32),
        (STANDARD, False),
        (1_581_056, 58_589_696, None),
    ),
    (
        T4,
        recurrent(
            Mode.GRU,
            96,
            256,
            layers=3,
            directions=2,
            steps=50,
            batch=24,
            itemsize=2,
            has_dropout=True,
        ),
        (STANDARD, True),
        (5_818_368, 64_481_728, 24_883_456),
    ),
    (
        H200,
        recurrent(Mode.TANH, 640, 256, layers=2, steps=200, batch=64),
        (STANDARD, True),
        (1_445_888, 144_966_400, 39_321_856),
    ),
    (
        T4,
        recurrent(Mode.RELU, 640, 256, layers=2, steps=200, batch=64),
        (STANDARD, True),
        (1_445_888, 144_442_112, 39_321_856),
    ),
    (
        A100,
        recurrent(Mode.LSTM, 128, 256, projection=64, layers=2, steps=20, batch=8),
        (STANDARD, True),
        (1_458_176, 2_523_456, 2_212_096),
    ),
    (
        A100,
        recurrent(Mode.LSTM, 64, 96, directions=2, steps=12, batch=4, lengths=[12, 9, 9, 4]),
        (STANDARD, True),
        (497_664, 17_450_240, 130_816),
    ),
    (
        A100,
        recurrent(Mode.GRU, 64, 96, layers=2, steps=12, batch=4, lengths=[12, 9, 9, 4]),
        (STANDARD, True),
        (410_112, 454_144, 169_984),
    ),
    (
        A100,
        recurrent(Mode.LSTM, 64, 128, layers=2, steps=32, batch=8, has_dropout=True),
        (PERSISTENT, True),
        (925_696, 3_932_480, 1_446_144),
    ),
    (
        H200,
        recurrent(Mode.GRU, 64, 128, directions=2, steps=32, batch=8, itemsize=2),
        (PERSISTENT, False),
        (297_984, 18_698_560, None),
    ),
    (
        H200,
        recurrent(Mode.LSTM, 256, 512, steps=64, batch=64, itemsize=2),
        (PERSISTENT, True),
        (3_153_920, 102_236_928, 20_971_776),
    ),
]


@pytest.mark.parametrize(("gpu", "layers", "how", "answers"), ANSWERS)
def test_the_sizes_are_what_libcudnn_answers(
    gpu: devices.Gpu, layers: Recurrent, how: Any, answers: Any
) -> None:
    (algorithm, training), (weights, workspace, reserve) = how, answers
    assert layers.weight_elements() * layers.itemsize == weights
    assert layers.workspace_bytes(gpu, algorithm, training=training) == workspace
    if reserve is not None:
        assert layers.reserve_bytes() == reserve


def test_the_reserve_is_what_was_seen_on_a_gpu_but_for_256_bytes() -> None:
    # pytorch/pytorch#2895: a P100 under cuDNN 7; four layers of 320, 25,000 rows of fp32.
    # LSTM: 25,000 * 320 * 4 B * (5 * 4 + 3); GRU: 25,000 * 320 * 4 B * (6 * 4 + 3).
    lstm = recurrent(Mode.LSTM, 123, 320, layers=4, steps=1000, batch=25)
    gru = recurrent(Mode.GRU, 123, 320, layers=4, steps=1000, batch=25)
    assert lstm.reserve_bytes() == 736_000_000 + 256
    assert gru.reserve_bytes() == 864_000_000 + 256


def test_the_state_of_dropout_has_24_bytes_for_each_thread_of_the_gpu() -> None:
    assert dropout_state_bytes(A100) == 24 * 108 * 2048
    assert dropout_state_bytes(T4) == 24 * 40 * 1024


@pytest.mark.parametrize(
    ("layers", "offsets"),
    [
        # In elements of 4 bytes: LSTM's matrices are [4 * 16, 10] = 640 and [64, 16] = 1,024.
        (recurrent(Mode.LSTM, 10, 16, directions=2), [0, 640, 3328, 3392, 1664, 2304, 3456, 3520]),
        # With a projection to 8: [64, 10], [64, 8] and [8, 16].
        (recurrent(Mode.LSTM, 10, 16, projection=8), [0, 640, 1280, 1344, 1152]),
    ],
)
def test_matrices_lie_before_biases_in_the_buffer(layers: Recurrent, offsets: list[int]) -> None:
    # cudnnGetRNNWeightParams of libcudnn 9.24 answers these, times 4.
    assert weight_offsets(layers) == offsets


# -- the operators


def call(**changes: Any) -> tuple[Any, ...]:
    """The arguments of ``_cudnn_rnn``: an LSTM, 32 -> 48, of 10 steps and 4 sequences."""
    values: dict[str, Any] = {
        "input": torch.empty(10, 4, 32, device="meta"),
        "weight": [torch.empty(size, device="meta") for size in ((192, 32), (192, 48), 192, 192)],
        "weight_stride0": 4,
        "weight_buf": torch.empty(15_744, device="meta"),
        "hx": torch.empty(1, 4, 48, device="meta"),
        "cx": torch.empty(1, 4, 48, device="meta"),
        "mode": 2,
        "hidden_size": 48,
        "proj_size": 0,
        "num_layers": 1,
        "batch_first": False,
        "dropout": 0.0,
        "train": True,
        "bidirectional": False,
        "batch_sizes": [],
        "dropout_state": None,
    }
    return tuple({**values, **changes}.values())


def results_of(func: Any, args: tuple[Any, ...]) -> Any:
    return result_rules(Target.CUDA)[func](Call(layouts(args), {}, None))


def scratch_of(func: Any, args: tuple[Any, ...]) -> Any:
    rule = rule_of(func, Target.CUDA)
    assert rule is not None
    return stages(rule(Call(layouts(args), {}, None, A100)))


def test_forward_returns_output_states_and_a_reserve() -> None:
    output, hy, cy, reserve, buffer = results_of(aten._cudnn_rnn.default, call())

    assert (output.size, hy.size, cy.size) == ((10, 4, 48), (1, 4, 48), (1, 4, 48))
    assert reserve.nbytes == 256 + 10 * 4 * 48 * 4 * 5  # four gates and the cell
    assert buffer.nbytes == 0  # it is the weights'


def test_weights_apart_are_copied_together_in_each_call() -> None:
    *_, buffer = results_of(aten._cudnn_rnn.default, call(weight_buf=None))

    assert buffer.nbytes == 4 * (192 * 32 + 192 * 48 + 192 + 192)


def test_evaluation_keeps_nothing_and_has_no_backward() -> None:
    *_, reserve, _ = results_of(aten._cudnn_rnn.default, call(train=False))
    assert reserve.nbytes == 0

    with pytest.raises(RuntimeError, match="can only be called in training mode"):
        results_of(aten._cudnn_rnn_backward.default, backward(train=False))


def test_batch_first_copies_the_input_and_returns_a_transposed_view() -> None:
    args = call(input=torch.empty(4, 10, 32, device="meta"), batch_first=True)

    output, *_ = results_of(aten._cudnn_rnn.default, args)
    assert (output.size, output.stride) == ((4, 10, 48), (48, 4 * 48, 1))
    ((copy, _),) = scratch_of(aten._cudnn_rnn.default, args)
    assert copy == 4 * 10 * 32 * 4
    ((_,),) = scratch_of(aten._cudnn_rnn.default, call())  # without it the workspace only


def test_states_that_are_not_contiguous_are_an_error_as_in_torch() -> None:
    with pytest.raises(RuntimeError, match="rnn: hx is not contiguous"):
        results_of(aten._cudnn_rnn.default, call(hx=torch.empty(4, 2, 48, device="meta")[:, :1]))


def backward(**changes: Any) -> tuple[Any, ...]:
    """The arguments of ``_cudnn_rnn_backward`` after ``call``, with a gradient of the output."""
    mask = changes.pop("output_mask", [True, True, True, True])
    gradient = changes.pop("grad_output", torch.empty(10, 4, 48, device="meta"))
    forward = call(**changes)
    output = torch.empty(10, 4, 48, device="meta")
    reserve = torch.empty(38_656, dtype=torch.uint8, device="meta")
    return (*forward[:6], output, gradient, None, None, *forward[6:], reserve, mask)


def test_the_gradients_of_the_weights_are_views_of_one_buffer() -> None:
    dx, dhx, dcx, weights = results_of(aten._cudnn_rnn_backward.default, backward())

    assert (dx.size, dhx.size, dcx.size) == ((10, 4, 32), (1, 4, 48), (1, 4, 48))
    assert [w.offset for w in weights] == [0, 6144, 15_360, 15_552]
    assert {(w.alias, w.nbytes) for w in weights} == {(0, 4 * 15_744)}


def test_without_biases_they_are_copied_out_of_it() -> None:
    weight = call()[1][:2]
    args = backward(weight=weight, weight_stride0=2)

    *_, weights = results_of(aten._cudnn_rnn_backward.default, args)
    assert [w.nbytes for w in weights] == [4 * 192 * 32, 4 * 192 * 48]
    _, second = scratch_of(aten._cudnn_rnn_backward.default, args)
    assert 4 * 15_744 in second  # the buffer, with room for the biases


def test_backward_makes_zeros_for_gradients_that_are_not_there() -> None:
    first, second = scratch_of(aten._cudnn_rnn_backward.default, backward())
    # Zeros for hy and cy, [1, 4, 48] each; then the workspace, in both stages the same.
    assert first[:2] == second[:2] == (4 * 48 * 4, 4 * 48 * 4)
    assert first[2:] == second[2:]
    assert len(first) == 3

    (only, *_) = scratch_of(
        aten._cudnn_rnn_backward.default, backward(output_mask=[True, True, True, False])
    )
    assert only == first  # no second stage for frozen weights


def test_a_small_lstm_takes_the_persistent_kernel_and_its_workspace() -> None:
    # get_algo of cudnn/RNN.cpp: up to 192 hidden forward, 128 backward.
    wide = {
        "hidden_size": 160,
        "weight": [],
        "hx": torch.empty(1, 4, 160, device="meta"),
        "cx": torch.empty(1, 4, 160, device="meta"),
    }
    layers = recurrent(Mode.LSTM, 32, 160, steps=10, batch=4)
    persistent = layers.workspace_bytes(A100, PERSISTENT, training=True)
    standard = layers.workspace_bytes(A100, STANDARD, training=True)
    assert persistent > standard

    ((forward_bytes,),) = scratch_of(aten._cudnn_rnn.default, call(**wide))
    assert forward_bytes == persistent
    (*_, backward_bytes), _ = scratch_of(aten._cudnn_rnn_backward.default, backward(**wide))
    assert backward_bytes == standard


# -- whole models


class Sequences(nn.Module):
    """The outputs of a recurrent module."""

    def __init__(self, recurrent: nn.Module) -> None:
        super().__init__()
        self.recurrent = recurrent

    def forward(self, x: Tensor) -> Any:
        return self.recurrent(x)[0]


class Packed(nn.Module):
    """A GRU on packed sequences of 12, 9 and 4 steps, in any order."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.gru = nn.GRU(32, 40, **options)

    def forward(self, x: Tensor) -> Tensor:
        lengths = torch.tensor([9, 12, 4])
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.gru(packed)[0], total_length=14)[0]


X = torch.randn(10, 4, 32)


def operators(report: Report) -> list[str]:
    return [point.op for point in report.timeline or () if "cudnn" in point.op]


MODULES = [
    (nn.LSTM(32, 48, 2, batch_first=True), "lstm"),
    (nn.LSTM(32, 48, proj_size=16, bias=False), "lstm"),
    (nn.GRU(32, 48, bidirectional=True), "gru"),
    (nn.RNN(32, 48), "rnn_tanh"),
    (nn.RNN(32, 48, nonlinearity="relu"), "rnn_relu"),
]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "amp-fp16"])
@pytest.mark.parametrize(("module", "name"), MODULES)
def test_a_step_runs_cudnn(module: nn.Module, name: str, precision: str) -> None:
    report = graphmem.analyze(
        Sequences(module), X, precision=precision, timeline=True, optimizer="sgd", steps=1
    )

    assert operators(report) == ["aten._cudnn_rnn", "aten._cudnn_rnn_backward"]
    assert [(k.op, k.kernel) for k in report.kernels] == [(name, "cudnn")]


@pytest.mark.parametrize("grad", ["no_grad", "inference_mode"])
def test_an_inference_runs_it_too(grad: str) -> None:
    report = graphmem.analyze(
        Sequences(nn.LSTM(32, 48)), X, mode="inference", grad=grad, timeline=True
    )
    assert set(operators(report)) == {"aten._cudnn_rnn"}


def test_a_layer_saves_its_input_states_output_and_reserve() -> None:
    model = nn.Sequential(nn.Linear(32, 32), Sequences(nn.GRU(32, 48)))

    report = graphmem.analyze(model, X, optimizer="sgd", steps=1)

    (gru,) = [layer for layer in report.layers if layer.module == "1.recurrent"]
    # Rounded to 512 B: input 10*4*32*4 = 5,120; hx 4*48*4 = 768 -> 1,024; output
    # 10*4*48*4 = 7,680; reserve 256 + 6*7,680 = 46,336 -> 46,592.
    assert gru.saved_bytes == 5_120 + 1_024 + 7_680 + 46_592


def test_parameters_lie_in_one_buffer_and_so_do_their_gradients() -> None:
    def breakdown(bias: bool) -> tuple[int, int]:
        model = Sequences(nn.GRU(32, 48, bias=bias))
        report = graphmem.analyze(model, X, optimizer="sgd", steps=1)
        return report.breakdown["parameters"], report.breakdown["gradients"]

    # 144 * 32 + 144 * 48 elements of weights, 46,080 B; with two biases of 144, 47,232 B.
    assert breakdown(bias=True) == (47_232, 47_232)
    assert breakdown(bias=False) == (47_232, 46_080)  # room for biases, and gradients apart


def test_a_computed_weight_is_copied_with_the_others_in_each_call() -> None:
    module = nn.GRU(32, 48)
    nn.utils.parametrizations.weight_norm(module, "weight_hh_l0")

    report = graphmem.analyze(Sequences(module), X, optimizer="sgd", steps=1, timeline=True)

    assert operators(report) == ["aten._cudnn_rnn", "aten._cudnn_rnn_backward"]
    (gru,) = [layer for layer in report.layers if layer.module == "recurrent"]
    # As above input 5,120, hx 1,024, output 7,680, reserve 46,592; the computed weight
    # [144, 48], 27,648; and the buffer of all weights, 47,232 -> 47,616.
    assert gru.saved_bytes == 5_120 + 1_024 + 7_680 + 46_592 + 27_648 + 47_616


def test_the_users_weights_are_as_they_were() -> None:
    module = nn.LSTM(32, 48)
    weights = list(module.parameters())
    storages = [w.untyped_storage()._cdata for w in weights]

    graphmem.analyze(Sequences(module), X)

    assert all(a is b for a, b in zip(module.parameters(), weights, strict=True))
    assert [w.untyped_storage()._cdata for w in module.parameters()] == storages
    assert module(X)[0].shape == (10, 4, 48)


def test_dropout_between_layers_makes_its_state_once() -> None:
    report = graphmem.analyze(
        Sequences(nn.LSTM(32, 48, 2, dropout=0.1)), X, timeline=True, optimizer="sgd", steps=2
    )
    assert operators(report).count("aten._cudnn_init_dropout_state") == 1


def test_packed_sequences_run_their_own_rows() -> None:
    report = graphmem.analyze(
        Packed(), torch.randn(12, 3, 32), timeline=True, optimizer="sgd", steps=1
    )
    assert operators(report) == ["aten._cudnn_rnn", "aten._cudnn_rnn_backward"]
    (gru,) = [layer for layer in report.layers if layer.module == "gru"]
    # 25 rows: data 25*32*4 = 3,200 -> 3,584; hx 3*40*4 = 480 -> 512; output 25*40*4 = 4,000
    # -> 4,096; reserve 256 + 6*4,000 = 24,256 -> 24,576.
    assert gru.saved_bytes == 3_584 + 512 + 4_096 + 24_576


def test_lengths_that_nobody_knows_are_an_error_in_one_line() -> None:
    class Unknown(nn.Linear):
        def forward(self, x: Tensor) -> Any:
            lengths = super().forward(x)[0, :, 0].long()
            return nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)[0]

    with pytest.raises(graphmem.GraphmemError, match="the length of a sequence decides"):
        graphmem.analyze(Unknown(32, 1), torch.randn(12, 3, 32), mode="inference")


def test_backward_in_evaluation_is_torchs_own_error() -> None:
    module = Sequences(nn.LSTM(32, 48)).eval()

    def step() -> None:
        module(X).sum().backward()

    with pytest.raises(TraceError, match="can only be called in training mode"):
        graphmem.record(step)


def test_without_cudnn_the_report_says_what_was_taken() -> None:
    report = graphmem.analyze(Sequences(nn.LSTM(32, 48)), X, precision="bf16", device="T4")

    (kernel,) = report.kernels
    assert (kernel.kernel, kernel.why) == ("composition", "not cudnn: no bfloat16 before SM 8.0")
    assert "recurrent layers without cuDNN" in {unknown.what for unknown in report.unknown}
