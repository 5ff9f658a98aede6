"""After a trace, also after one that failed, everything is as it was before."""

from __future__ import annotations

import gc
import math
import random
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import graph
from torch.nn.parameter import is_lazy

import graphmem


class Stateful(nn.Module):
    """Keeps tensors, a list and a counter on itself, and fails on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros(1))
        self.cache: Tensor | None = None
        self.history: list[Tensor] = []
        self.calls = 0
        self.fail = False

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.seen += 1
        self.cache = self.norm(self.layer(x))
        self.history.append(self.cache)
        if self.fail:
            raise ValueError("on demand")
        return self.cache


def snapshot(model: Stateful) -> dict[str, Any]:
    parameters = dict(model.named_parameters())
    return {
        "identities": {name: id(p) for name, p in parameters.items()},
        "values": {name: p.detach().clone() for name, p in parameters.items()},
        "buffers": {name: b.clone() for name, b in model.named_buffers()},
        "gradients": {name: p.grad for name, p in parameters.items()},
        "attributes": (model.cache, list(model.history), model.calls, model.training),
        "random": (torch.get_rng_state(), random.getstate()),
        "hooks": [len(m._forward_hooks) + len(m._backward_hooks) for m in model.modules()],
        "patched": (
            nn.Module.__call__,
            vars(Tensor).get("item"),
            vars(Tensor).get("tolist"),
            vars(Tensor).get("__float__"),
            vars(Tensor).get("__bool__"),
            (math.isnan, math.isinf, math.isfinite),
            graph.disable_saved_tensors_hooks,
            torch.get_rng_state,
            torch.cuda._lazy_init,
        ),
        "collector": (gc.isenabled(), gc.get_freeze_count()),
    }


def assert_same(before: Any, after: Any) -> None:
    if isinstance(before, Tensor):
        assert torch.equal(before, after)
    elif isinstance(before, dict):
        assert before.keys() == after.keys()
        for key in before:
            assert_same(before[key], after[key])
    elif isinstance(before, list | tuple):
        assert len(before) == len(after)
        for one, other in zip(before, after, strict=True):
            assert_same(one, other)
    else:
        assert before == after


def analyzed(model: Stateful) -> None:
    graphmem.analyze(model, torch.ones(4, 8))


def recorded(model: Stateful) -> None:
    optimizer = torch.optim.AdamW(model.parameters())
    state = dict(optimizer.state_dict())

    def step() -> None:
        optimizer.zero_grad()
        model(torch.rand(4, 8)).sum().backward()
        optimizer.step()

    try:
        graphmem.record(step)
    finally:
        assert optimizer.state_dict() == state
        assert optimizer.param_groups[0]["params"][0] is model.layer.weight


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("run", [analyzed, recorded])
def test_a_model_is_left_as_it_was(run: Callable[[Stateful], None], fails: bool) -> None:
    model = Stateful().eval()
    model.fail = fails
    model.layer.weight.grad = torch.ones(8, 8)
    before = snapshot(model)

    if fails:
        with pytest.raises(graphmem.TraceError, match="on demand"):
            run(model)
    else:
        run(model)

    assert_same(before, snapshot(model))
    model.fail = False
    assert model(torch.randn(2, 8)).isfinite().all()  # and it still runs for real


def test_tensors_that_a_loop_writes_on_have_their_values_back() -> None:
    model = nn.Linear(8, 8)
    counter, average = torch.zeros((), dtype=torch.int64), torch.arange(8.0)

    def step() -> None:
        nonlocal counter
        counter += 1
        average[2:].mul_(0.5)
        average[0] += 3
        average.mul_(0.9).add_(model(torch.randn(4, 8)).mean(0).detach())

    graphmem.record(step)

    assert counter.item() == 0
    assert torch.equal(average, torch.arange(8.0))


def test_tensors_that_a_loop_keeps_come_back_without_memory_and_without_danger() -> None:
    model = nn.Linear(8, 8)
    losses: list[Tensor] = []

    def step() -> None:
        loss = model(torch.randn(4, 8)).sum()
        loss.backward()
        losses.append(loss)

    graphmem.record(step, steps=3)

    assert [loss.device.type for loss in losses] == ["meta"] * 3


def test_containers_on_a_module_are_the_same_objects_with_the_same_contents() -> None:
    model = Stateful()
    inner: dict[str, Any] = {"tensors": [torch.ones(2)], "names": {"a"}}
    inner["itself"] = inner
    vars(model)["state"] = inner
    tensors, names = inner["tensors"], inner["names"]

    graphmem.analyze(model, torch.ones(4, 8))

    assert vars(model)["state"] is inner
    assert inner["itself"] is inner
    assert inner["tensors"] is tensors
    assert torch.equal(tensors[0], torch.ones(2))
    assert inner["names"] is names


class Frozen(OrderedDict[str, Any]):
    """As diffusers keeps the configuration of a model: what is written once stays."""

    def __init__(self, **items: Any) -> None:
        super().__init__(**items)
        self.is_frozen = True

    def __setitem__(self, name: str, value: Any) -> None:
        if hasattr(self, "is_frozen"):
            raise TypeError("frozen")
        super().__setitem__(name, value)

    def clear(self) -> None:
        raise TypeError("frozen")

    def update(self, *args: Any, **items: Any) -> None:
        raise TypeError("frozen")


class Once(list[Any]):
    """A list that refuses to be written."""

    def __setitem__(self, *place: Any) -> None:
        raise TypeError("written once")


def test_containers_that_refuse_to_be_written_are_left_as_they_were() -> None:
    model = Stateful()
    frozen, once, counted = Frozen(b=[1], a=2), Once(["x"]), Counter(x=2)
    frozen.move_to_end("b")
    vars(model).update(frozen=frozen, once=once, counted=counted)

    graphmem.analyze(model, torch.ones(4, 8))

    assert vars(model)["frozen"] is frozen
    assert list(frozen.items()) == [("a", 2), ("b", [1])]
    assert (once, counted) == (["x"], {"x": 2})


def test_a_second_analysis_gives_the_same_bytes() -> None:
    model = Stateful()

    first, second = (graphmem.analyze(model, torch.randn(4, 8)).to_dict() for _ in range(2))

    assert first == second


@pytest.mark.filterwarnings("ignore:`torch.jit")
def test_a_torchscript_module_keeps_its_weights() -> None:
    model = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)))
    before = {name: value.clone() for name, value in model.state_dict().items()}

    graphmem.analyze(model, torch.randn(4, 8))

    after = model.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


def test_a_lazy_module_stays_lazy() -> None:
    model = nn.Sequential(nn.LazyLinear(16), nn.LazyBatchNorm1d())

    report = graphmem.analyze(model, torch.randn(4, 8), target="cpu")

    assert report.subject.parameters == 8 * 16 + 16 + 2 * 16  # the linear layer and the norm
    assert [type(layer) for layer in model] == [nn.LazyLinear, nn.LazyBatchNorm1d]
    assert all(is_lazy(parameter) for parameter in model.parameters())
    assert model(torch.randn(4, 8)).shape == (4, 16)  # and can still be called for real
