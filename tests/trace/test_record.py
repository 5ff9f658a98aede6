"""The user's own loop."""

from __future__ import annotations

import functools
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import graphmem
from graphmem.resolve import make_options
from graphmem.schedule import BEFORE
from graphmem.trace.run import trace_callable


def gan() -> tuple[nn.Module, nn.Module]:
    generator = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))
    critic = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
    return generator, critic


def test_a_gan_with_two_optimizers() -> None:
    generator, critic = gan()
    first = torch.optim.Adam(generator.parameters())
    second = torch.optim.SGD(critic.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        second.zero_grad()
        fake = generator(torch.randn(128, 16))
        loss = F.softplus(critic(fake.detach())).mean()
        loss = loss + F.softplus(-critic(torch.randn(128, 32))).mean()
        loss.backward()
        second.step()
        first.zero_grad()
        F.softplus(-critic(fake)).mean().backward()
        first.step()

    report = graphmem.record(step, target="cpu")

    ours = sum(p.nbytes for p in generator.parameters())
    theirs = sum(p.nbytes for p in critic.parameters())
    assert report.subject.parameters == (ours + theirs) // 4
    states = sum(layer.optimizer_bytes for layer in report.layers)
    assert states == 2 * ours + 4 * 4 + theirs  # Adam: two moments, and 4 steps of 4 B
    modules = {layer.module for layer in report.layers}
    assert {"generator.0", "critic.2"} <= modules


def test_a_list_of_losses_grows_with_every_step() -> None:
    model = nn.Linear(64, 64)
    losses: list[Tensor] = []

    def leaky() -> None:
        losses.append(model(torch.randn(256, 64)).tanh().sum())  # keeps its graph

    def careful() -> None:
        losses.append(model(torch.randn(256, 64)).tanh().sum().detach())

    def growth(step: object) -> int:
        steps = graphmem.record(step, steps=3, target="cpu").steps  # type: ignore[arg-type]
        return steps[2].allocated_bytes - steps[1].allocated_bytes

    # Each step keeps tanh's result [256, 64], the input [256, 64] and the loss.
    assert growth(leaky) == 256 * 64 * 4 * 2 + 4
    assert growth(careful) == 4


def test_a_method_of_a_trainer_and_a_partial_are_looked_through() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.parts = {"model": nn.Linear(64, 64)}
            self.optimizer = torch.optim.AdamW(self.parts["model"].parameters())

        def step(self, batch: int) -> None:
            self.optimizer.zero_grad()
            self.parts["model"](torch.randn(batch, 64)).sum().backward()
            self.optimizer.step()

    trainer = Trainer()

    report = graphmem.record(functools.partial(trainer.step, 32))

    assert report.subject.parameters == 64 * 64 + 64
    assert report.breakdown["optimizer_states"] > 0
    assert len(trainer.optimizer.state) == 0


def test_a_loop_that_was_trained_before_starts_with_its_states() -> None:
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(8, 64)).sum().backward()
        optimizer.step()

    step()  # for real
    report = graphmem.record(step, steps=1, target="cpu")

    assert report.breakdown["optimizer_states"] == (64 * 64 + 64) * 4
    momentum = optimizer.state[model.weight]["momentum_buffer"]
    assert momentum.isfinite().all()


def test_code_that_names_a_gpu_gives_the_same_bytes() -> None:
    model = nn.Linear(64, 64)

    def step(device: str) -> None:
        x = torch.ones(32, 64, device=device).to(device)
        (model(x) + torch.zeros(64).to(device)).sum().backward()

    on_cpu = graphmem.record(functools.partial(step, "cpu"))
    on_cuda = graphmem.record(functools.partial(step, "cuda"))

    assert on_cuda.peak.allocated_bytes == on_cpu.peak.allocated_bytes


def test_kernels_that_the_cpu_has_are_not_taken_apart() -> None:
    """The dispatcher has a composition of silu_backward too, for devices without a kernel."""
    x = torch.randn(8, 8, requires_grad=True)
    model = nn.Linear(8, 8)

    def step() -> None:
        F.mish(F.silu(model(x))).sum().backward()

    timeline = graphmem.record(step, steps=1, target="cpu", timeline=True).timeline
    assert timeline is not None
    names = [point.op for point in timeline]
    assert "aten.silu_backward" in names
    assert "aten.mish_backward" in names
    assert "aten.sigmoid" not in names


def test_the_first_trace_of_a_process_is_like_every_other() -> None:
    """What torch imports when it is first needed must not hold the step's tensors."""
    program = (
        "import torch, graphmem\n"
        "def step():\n"
        "    for _ in range(2):\n"
        "        x = torch.randn(64, 64, requires_grad=True)\n"
        "        (x.softmax(-1) * x).sum().backward()\n"
        "        del x\n"
        "for _ in range(2):\n"
        "    report = graphmem.record(step, steps=1)\n"
        "    print(report.peak.allocated_bytes, any('cycles' in u.what for u in report.unknown))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    assert first == second
    assert first.endswith("False")


def test_what_stands_from_the_start_lies_as_module_to_moves_it() -> None:
    attention = nn.MultiheadAttention(8, 2)
    model = nn.Sequential(nn.BatchNorm1d(4), attention)

    schedule = trace_callable(lambda: model[0](torch.randn(2, 4)), make_options(steps=1))

    moved: list[torch.Size] = []

    def move(tensor: Tensor) -> Tensor:
        moved.append(tensor.shape)
        return tensor

    model._apply(move)  # as module.to(device) does, with each tensor in turn
    first = [storage.shape for storage in schedule.storages if storage.born == BEFORE]
    assert first == [tuple(shape) for shape in moved]
    assert first.index((8, 8)) < first.index((24, 8))  # out_proj, then the parent's in_proj


def test_empty_tensors_are_written_in_place() -> None:
    def step() -> None:
        torch.empty(0).relu_().add_(1)
        torch.empty(0, 8).mul_(2)[:, :4].zero_()

    assert graphmem.record(step, target="cpu").peak.allocated_bytes == 0


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_plain_tensor_is_trained_like_a_modules_parameter(device: str) -> None:
    def peak(holder: Any) -> int:
        optimizer = torch.optim.Adam([holder.weight])

        def step() -> None:
            optimizer.zero_grad()
            (holder.weight * 2).sum().backward()
            optimizer.step()

        return graphmem.record(step, target="cpu").peak.requested_bytes

    plain = torch.ones(4096, requires_grad=True, device=device)

    assert peak(SimpleNamespace(weight=plain)) == peak(nn.Linear(4096, 1, bias=False))
    assert (plain.device.type, plain.shape, plain.grad) == (device, (4096,), None)
    assert device == "meta" or bool((plain == 1).all())


@pytest.mark.parametrize("optimized", [True, False])
def test_a_plain_tensor_is_as_it_was_though_the_step_keeps_its_graph(optimized: bool) -> None:
    weight = torch.ones(8, requires_grad=True)
    weight.grad = before = torch.full((8,), 3.0)
    optimizer = torch.optim.SGD([weight] if optimized else [nn.Parameter(torch.zeros(1))], lr=1.0)
    losses: list[Tensor] = []

    def step() -> None:
        losses.append((weight * 2).sum())
        (weight * 2).sum().backward()
        optimizer.step()

    graphmem.record(step, target="cpu")

    assert weight.tolist() == [1.0] * 8
    assert weight.grad is before
    assert before.tolist() == [3.0] * 8


def test_a_leaf_on_meta_has_a_gradient() -> None:
    leaf = torch.empty(128, device="meta", requires_grad=True)

    report = graphmem.record(lambda: (leaf * 2).sum().backward(), target="cpu", steps=1)

    assert report.peak.requested_bytes >= 2 * 128 * 4  # itself and its gradient
    assert (leaf.device.type, leaf.grad) == ("meta", None)


def test_a_module_that_a_step_makes_dies_with_it() -> None:
    def step() -> None:
        model = nn.Linear(64, 64, bias=False)
        with torch.no_grad():
            model(torch.randn(8, 64))

    report = graphmem.record(step, steps=3, target="cpu")

    # The weight [64, 64], the input and the output [8, 64]; the same in each step.
    peak = (64 * 64 + 2 * 8 * 64) * 4
    assert [s.allocated_bytes for s in report.steps] == [peak] * 3
