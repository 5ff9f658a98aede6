"""Whole steps, with the arithmetic by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphmem
from graphmem.report import Report
from tests.trace import subjects

# A plain MLP on a batch of 4: 10 -> 20 -> 5, fp32.
WEIGHTS = (10 * 20 + 20 + 20 * 5 + 5) * 4  # 325 elements of 4 B = 1300
X = torch.randn(4, 10)
INPUT = 4 * 10 * 4  # 160
HIDDEN = 4 * 20 * 4  # 320: the result of ReLU, which ReLU and the second Linear save
OUTPUT = 4 * 5 * 4  # 80
LOSS = 4


def plain_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))


def of(optimizer: Any, **options: Any) -> Report:
    return graphmem.analyze(plain_mlp(), X, optimizer=optimizer, target="cpu", **options)


@pytest.mark.parametrize(
    ("optimizer", "states"),
    [
        ("sgd", 0),
        ("sgd+momentum", WEIGHTS),  # 1x
        ("adam", 2 * WEIGHTS + 4 * 4),  # two moments, and a step of 4 B for 4 parameters
        ("adamw", 2 * WEIGHTS + 4 * 4),
    ],
)
def test_optimizer_states_are_those_of_the_textbook(optimizer: str, states: int) -> None:
    report = of(optimizer)

    assert sum(layer.optimizer_bytes for layer in report.layers) == states
    assert report.breakdown["optimizer_states"] == states


def test_the_peaks_of_an_mlp_under_sgd_by_hand() -> None:
    report = of("sgd", steps=1)

    # Forward: the result of the first Linear is there while ReLU makes its own; then the
    # output and the loss stand beside what ReLU saved.
    assert report.steps[0].phases["forward"] == (
        WEIGHTS + INPUT + max(HIDDEN + HIDDEN, HIDDEN + OUTPUT + LOSS)
    )
    # Backward ends with all gradients there, and that of ReLU's input, from which the last
    # one, of the first bias, is summed. The loss's own gradient (4 B) lives to the end.
    assert report.steps[0].phases["backward"] == (
        WEIGHTS + INPUT + OUTPUT + LOSS + WEIGHTS + HIDDEN + LOSS
    )


def test_the_breakdown_at_the_peak_by_hand() -> None:
    report = of("sgd", steps=1)

    assert report.breakdown == {
        "parameters": WEIGHTS,
        "buffers": 0,
        "gradients": WEIGHTS,
        "optimizer_states": 0,
        "inputs": INPUT,
        "saved_for_backward": 0,  # all used up by then
        "outputs": OUTPUT + LOSS,
        "temporaries": HIDDEN + LOSS,
        "workspaces": 0,
        "allocator_slack": 0,
    }
    assert (report.peak.module, report.peak.op) == ("0", "aten.sum.dim_IntList")
    assert (report.peak.step, report.peak.phase) == (1, "backward")


def test_saved_for_backward_at_the_end_of_forward_by_hand() -> None:
    class Scores(nn.Module):
        """Linear, ReLU, Linear, and the sum of squares: the peak is where backward starts."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(10, 1000), nn.ReLU(), nn.Linear(1000, 1))

        def forward(self, x: Tensor) -> Tensor:
            return self.layers(x).square().sum()

    report = graphmem.analyze(Scores(), torch.randn(64, 10), optimizer="sgd", target="cpu", steps=1)
    # ReLU's result [64, 1000] is saved once for ReLU and the second Linear; square saves
    # the output of the second Linear [64, 1]; the first Linear saves its input.
    by_layer = {layer.module: layer.saved_bytes for layer in report.layers}
    assert by_layer["layers.0"] == 64 * 10 * 4
    assert by_layer["layers.1"] == 64 * 1000 * 4
    assert by_layer["layers.2"] == 0
    assert by_layer["(top level)"] == 64 * 1 * 4


def test_layers_know_what_they_own_and_save() -> None:
    first, relu, second = [layer for layer in of("adamw").layers if layer.module in "012"]

    assert (first.parameters, first.parameter_bytes) == (220, 880)  # 10*20 + 20
    assert (first.gradient_bytes, first.optimizer_bytes) == (880, 2 * 880 + 2 * 4)
    assert first.saved_bytes == INPUT
    assert relu.saved_bytes == HIDDEN  # the second Linear saves the same storage
    assert second.saved_bytes == 0
    assert (first.calls, relu.output_bytes, second.output_bytes) == (2, HIDDEN, OUTPUT)


def test_four_micro_batches_hold_one_set_of_gradients() -> None:
    one, four = of("sgd", accumulate=1), of("sgd", accumulate=4)

    gradients = [sum(layer.gradient_bytes for layer in r.layers) for r in (one, four)]
    assert gradients == [WEIGHTS, WEIGHTS]
    # In later micro-batches one gradient at a time stands beside the sums (the largest
    # is 10*20*4 = 800), and all sums stand through forward.
    assert four.steps[0].phases["backward"] is not None
    assert one.steps[0].phases["backward"] is not None
    extra = four.steps[0].phases["backward"] - one.steps[0].phases["backward"]
    assert 0 < extra < WEIGHTS


def test_states_are_there_from_the_second_step_on() -> None:
    first, second = of("adamw").steps

    assert first.phases["forward"] is not None
    assert second.phases["forward"] is not None
    grown = second.phases["forward"] - first.phases["forward"]
    # Gradients are set to none before forward; the old output and loss are still held.
    assert grown == 2 * WEIGHTS + 4 * 4 + OUTPUT + LOSS


def test_foreach_is_the_default_on_cuda_and_not_on_the_cpu() -> None:
    def operators(target: str) -> set[str]:
        report = graphmem.analyze(plain_mlp(), X, target=target, timeline=True)
        return {point.op for point in report.timeline or ()}

    assert any(op.startswith("aten._foreach") for op in operators("cuda"))
    assert not any(op.startswith("aten._foreach") for op in operators("cpu"))


def test_blocks_are_of_512_bytes_on_cuda() -> None:
    report = graphmem.analyze(plain_mlp(), X, optimizer="sgd", steps=1)

    assert report.peak.allocated_bytes % 512 == 0
    assert report.breakdown["allocator_slack"] == (
        report.peak.allocated_bytes
        - sum(v for k, v in report.breakdown.items() if k != "allocator_slack")
    )
    parameters = sum(-(-n * 4 // 512) * 512 for n in (200, 20, 100, 5))  # 1024+512+512+512
    rows = {layer.module: layer.live_at_peak_bytes for layer in report.layers}
    assert rows["0"] + rows["2"] >= parameters


def test_an_optimizer_may_be_a_class_or_a_callable() -> None:
    by_class = of(torch.optim.SGD)
    by_callable = of(lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9))

    assert by_class.breakdown["optimizer_states"] == 0
    assert by_callable.breakdown["optimizer_states"] == WEIGHTS


def test_the_same_from_meta_and_from_real_weights() -> None:
    with torch.device("meta"):
        on_meta = plain_mlp()

    assert graphmem.analyze(on_meta, X).to_dict() == graphmem.analyze(plain_mlp(), X).to_dict()


def test_idle_bytes_name_what_is_held_for_nothing() -> None:
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(64, 64, bias=False) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            kept = []
            for layer in self.layers:
                x = layer(x)
                kept.append(x)
            return x

    report = graphmem.analyze(
        Keeps(), torch.randn(1024, 64), mode="inference", target="cpu", steps=1
    )
    # At the last layer: its input is read, the result of the first layer is not.
    assert report.idle_bytes == 1024 * 64 * 4
    assert report.last_use_peak_bytes == report.peak.allocated_bytes - report.idle_bytes
    (idle,) = [holder for holder in report.holders if holder.idle_bytes]
    assert idle.module == "layers.0"


def test_every_operation_has_its_module_and_the_users_line() -> None:
    report = graphmem.analyze(subjects.Residual(), torch.randn(256, 128), timeline=True)

    assert report.timeline is not None
    modules = {(p.phase, p.module) for p in report.timeline}
    for number in range(4):
        assert ("forward", f"layers.{number}") in modules
        assert ("backward", f"layers.{number}") in modules
    lines = {holder.source for holder in report.holders if holder.category == "saved_for_backward"}
    assert lines
    assert all("tests/trace/subjects.py:" in str(line) for line in lines)


def test_the_line_that_calls_graphmem_is_no_line_of_the_model() -> None:
    report = of("adamw")

    assert report.peak.phase == "optimizer"
    assert report.peak.source is None
    assert not any("test_step.py" in str(holder.source) for holder in report.holders)


def test_inputs_are_tensors_specs_texts_and_containers() -> None:
    expected = of("sgd").peak.allocated_bytes

    spec = graphmem.spec("4x10")
    for inputs in ((X,), [X], {"input": X}, spec, "4x10", (spec,)):
        report = graphmem.analyze(plain_mlp(), inputs, optimizer="sgd", target="cpu")
        assert report.peak.allocated_bytes == expected
        assert report.subject.inputs[0].name == "input"


def test_gradients_that_the_step_lets_go_are_no_part_of_the_peak() -> None:
    model, x = nn.Linear(64, 64, bias=False), torch.zeros(8, 64)
    clean = graphmem.analyze(model, x, target="cpu", optimizer="sgd").peak.allocated_bytes
    model(x).mean().backward()
    after = graphmem.analyze(model, x, target="cpu", optimizer="sgd").peak.allocated_bytes
    assert after == clean  # 55304 and 38920: 64*64*4 B = 16384 too many


def test_saved_bytes_do_not_grow_with_accumulation() -> None:
    model, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)), torch.zeros(8, 64)
    one, four = (graphmem.analyze(model, x, target="cpu", accumulate=n) for n in (1, 4))
    saved = [next(row.saved_bytes for row in r.layers if row.module == "1") for r in (one, four)]
    assert saved == [8 * 64 * 4, 8 * 64 * 4]


def test_a_model_that_runs_no_operator_is_one_line() -> None:
    with pytest.raises(graphmem.TraceError, match="runs no operator"):
        graphmem.analyze(torch.nn.Identity(), torch.randn(4), mode="inference")
