"""Copies of parameters that real loops keep, each with its bytes and its line."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

import graphmem
from graphmem.report import CopyItem
from tests.trace.test_leaks import batch, line

PARAMETERS = (2 * (64 * 64 + 64) + 2 * 64) * 4
"""The bytes of the parameters of ``Trained``: two linear layers, and a batch norm."""
BUFFERS = 2 * 64 * 4 + 8
"""Its running mean and variance, and the number of batches."""


class Trained:
    """A model, and how it is trained."""

    def __init__(self) -> None:
        self.model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 64))
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(batch()).pow(2).mean().backward()
        self.optimizer.step()


def copies(step: Callable[[], Any], target: str = "cpu") -> list[CopyItem]:
    return list(graphmem.record(step, target=target).copies)


def test_an_averaged_model() -> None:
    trained = Trained()
    ema = AveragedModel(trained.model)

    def step() -> None:
        trained.step()
        ema.update_parameters(trained.model)

    (found,) = copies(step)
    assert (found.of, found.times, found.holder) == ("parameters", 1, "ema.module")
    assert (found.bytes, found.tensors) == (PARAMETERS + BUFFERS, 9)
    assert found.source == line(step, "update_parameters")

    (on_cuda,) = copies(step, "cuda")
    assert on_cuda.bytes == 2 * 64 * 64 * 4 + 7 * 512  # the small ones are a block each


def test_a_target_network_that_is_only_read() -> None:
    trained = Trained()
    target = copy.deepcopy(trained.model)

    def step() -> None:
        with torch.no_grad():
            target(batch())
        trained.step()

    (found,) = copies(step)
    assert (found.holder, found.bytes) == ("target", PARAMETERS + BUFFERS)
    assert found.source == line(step, "target(batch())")


def test_a_teacher_inside_of_the_model() -> None:
    student = nn.Linear(64, 64)
    model = nn.ModuleDict({"student": student, "teacher": copy.deepcopy(student)})
    optimizer = torch.optim.SGD(model["student"].parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        x = batch()
        with torch.no_grad():
            y = model["teacher"](x)
        (model["student"](x) - y).pow(2).mean().backward()
        optimizer.step()

    (found,) = copies(step)
    assert (found.holder, found.bytes) == ("teacher", (64 * 64 + 64) * 4)


def test_the_average_of_one_of_two_networks() -> None:
    first, second = Trained(), Trained()
    second.model.append(nn.Linear(64, 1))
    second.optimizer = torch.optim.AdamW(second.model.parameters())
    generator, critic = first.model, second.model  # by other names than ``model``
    ema = AveragedModel(generator)

    def step() -> None:
        first.step()
        second.step()
        critic(generator(batch()))
        ema.update_parameters(generator)

    (found,) = copies(step)
    assert (found.holder, found.bytes) == ("ema.module", PARAMETERS + BUFFERS)


def test_a_dictionary_of_clones() -> None:
    trained = Trained()
    shadow = {name: t.detach().clone() for name, t in trained.model.state_dict().items()}

    def step() -> None:
        trained.step()
        with torch.no_grad():
            for name, parameter in trained.model.named_parameters():
                shadow[name].lerp_(parameter, 0.1)

    (found,) = copies(step)
    assert (found.holder, found.bytes, found.tensors) == ("shadow", PARAMETERS + BUFFERS, 9)
    assert found.source == line(step, "lerp_")


def test_a_list_of_clones() -> None:
    trained = Trained()
    shadow = [p.detach().clone() for p in trained.model.parameters()]

    def step() -> None:
        trained.step()
        with torch.no_grad():
            torch._foreach_lerp_(shadow, list(trained.model.parameters()), 0.1)

    (found,) = copies(step)
    assert (found.holder, found.bytes, found.tensors) == ("shadow", PARAMETERS, 6)
    assert found.source == line(step, "_foreach_lerp_")


def test_clones_that_the_first_step_makes() -> None:
    trained = Trained()
    shadow: dict[str, Tensor] = {}

    def step() -> None:
        if not shadow:
            for name, parameter in trained.model.state_dict().items():
                shadow[name] = parameter.detach().clone()
        trained.step()

    (found,) = copies(step)
    assert (found.holder, found.bytes, found.times) == (None, PARAMETERS + BUFFERS, 1)
    assert found.source == line(step, "clone()")


def test_a_model_that_the_first_step_copies() -> None:
    trained = Trained()
    kept: list[nn.Module] = []

    def step() -> None:
        if not kept:
            kept.append(copy.deepcopy(trained.model))
        trained.step()

    (found,) = copies(step)
    assert (found.bytes, found.tensors) == (PARAMETERS + BUFFERS, 9)
    assert found.source == line(step, "deepcopy")
    assert "clone" not in vars(torch.UntypedStorage)  # as it was


def test_a_snapshot_of_every_step_is_a_growth_and_a_copy() -> None:
    trained = Trained()
    history: list[dict[str, Tensor]] = []

    def step() -> None:
        history.append({name: p.clone() for name, p in trained.model.named_parameters()})
        trained.step()

    report = graphmem.record(step, target="cpu")
    (found,) = report.copies
    # The clones have a graph, but nothing that it saved.
    assert (found.bytes, found.times) == (2 * PARAMETERS, 2)
    (grown,) = report.growth
    assert (grown.holder, grown.bytes, grown.tensors) == ("history", PARAMETERS, 6)


def test_the_last_gradients_are_a_copy_of_gradients() -> None:
    trained = Trained()
    last: list[Tensor] = []

    def step() -> None:
        trained.step()
        last[:] = [p.grad.clone() for p in trained.model.parameters() if p.grad is not None]

    (found,) = copies(step)
    assert (found.of, found.bytes) == ("gradients", PARAMETERS)
    assert found.source == line(step, "clone()")


# -- what is no copy


def test_frozen_layers_like_their_neighbours_are_no_copy() -> None:
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(4)))
    for layer in (model[0], model[1]):
        layer.requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(batch()).pow(2).mean().backward()
        optimizer.step()

    assert copies(step) == []


def test_two_networks_that_are_both_trained_are_no_copies() -> None:
    first, second = Trained(), Trained()

    def step() -> None:
        first.step()
        second.step()

    assert copies(step) == []


def test_inputs_in_the_shapes_of_the_parameters_are_no_copy() -> None:
    model = nn.Linear(64, 64)
    data = {"x": torch.randn(64, 64), "y": torch.randn(64)}

    def step() -> None:
        (model(data["x"]) - data["y"]).pow(2).mean().backward()
        model.zero_grad()

    assert copies(step) == []


def test_the_casts_of_autocast_are_no_copy() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(batch()).pow(2).mean()
        loss.backward()
        model.zero_grad()

    report = graphmem.record(step, target="cpu")
    assert any(holder.op == "aten._to_copy" for holder in report.holders)
    assert report.copies == ()


def test_what_is_only_shaped_like_the_parameters_is_no_copy() -> None:
    trained = Trained()
    states: list[Tensor] = []

    def step() -> None:
        if not states:
            states.extend(torch.zeros_like(p) for p in trained.model.parameters())
        trained.step()

    assert copies(step) == []


def test_an_inference_has_no_copy() -> None:
    model = nn.Linear(64, 64)
    other = copy.deepcopy(model)

    def step() -> None:
        with torch.no_grad():
            other(model(batch()))

    assert copies(step) == []
