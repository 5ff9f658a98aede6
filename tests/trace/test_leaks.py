"""Leaks and caches of real loops, each with its bytes and its line."""

from __future__ import annotations

import inspect
import warnings
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import graphmem
from graphmem.report import GrowthItem, Report

OUTPUT = 256 * 64 * 4
"""The bytes of a [256, 64] tensor."""


def line(function: Callable[..., Any], text: str) -> str:
    """``tests/trace/test_leaks.py:12``, the place of the line of a function that has a text."""
    function = inspect.unwrap(function)
    lines, first = inspect.getsourcelines(function)
    (offset,) = [i for i, each in enumerate(lines) if text in each]
    return f"tests/trace/{Path(inspect.getfile(function)).name}:{first + offset}"


def batch() -> Tensor:
    return torch.randn(256, 64)


def growth(step: Callable[[], Any], steps: int = 2, target: str = "cpu") -> list[GrowthItem]:
    return list(graphmem.record(step, steps=steps, target=target).growth)


def test_a_list_of_losses_keeps_the_graph_of_every_step() -> None:
    model = nn.Linear(64, 64)
    losses: list[Tensor] = []

    def step() -> None:
        losses.append(model(batch()).tanh().sum())

    (found,) = growth(step)
    assert (found.kind, found.per, found.holder, found.times) == ("graph", "step", "losses", 3)
    assert found.bytes == 2 * OUTPUT + 4  # the batch, tanh's result, and the loss
    assert (found.tensors, found.shape, found.op) == (3, (), "aten.sum")
    assert found.source == line(step, "tanh")

    (on_cuda,) = growth(step, target="cuda")
    assert on_cuda.bytes == 2 * OUTPUT + 512


def test_a_list_of_detached_losses_keeps_them_alone() -> None:
    model = nn.Linear(64, 64)
    losses: list[Tensor] = []

    def step() -> None:
        losses.append(model(batch()).tanh().sum().detach())

    (found,) = growth(step)
    assert (found.kind, found.bytes, found.tensors, found.holder) == ("tensors", 4, 1, "losses")


def test_after_backward_a_loss_keeps_no_tensor_but_itself() -> None:
    model = nn.Linear(64, 64)
    losses: list[Tensor] = []

    def step() -> None:
        model.zero_grad()
        losses.append(model(batch()).tanh().sum())
        losses[-1].backward()

    (found,) = growth(step)
    assert (found.kind, found.bytes, found.source) == ("tensors", 4, line(step, "tanh"))


def test_losses_as_numbers_keep_nothing() -> None:
    model = nn.Linear(64, 64)
    losses: list[float] = []
    assert growth(lambda: losses.append(model(batch()).tanh().sum().item())) == []


def test_a_sum_over_steps_keeps_the_graph_though_it_is_one_tensor() -> None:
    model = nn.Linear(64, 64)
    total: dict[str, Any] = {"loss": 0}

    def step() -> None:
        loss = model(batch()).tanh().sum()
        total["loss"] = total["loss"] + loss

    (found,) = growth(step)
    assert (found.kind, found.holder, found.bytes) == ("graph", "total.loss", 2 * OUTPUT)
    assert found.source == line(step, 'total["loss"] +')


def test_two_kept_tensors_share_what_they_keep() -> None:
    model = nn.Linear(64, 64)
    outputs: list[Tensor] = []
    losses: list[Tensor] = []

    def step() -> None:
        outputs.append(model(batch()).tanh())
        losses.append(outputs[-1].exp().sum())

    first, second = growth(step)
    assert (first.holder, first.bytes) == ("outputs", 2 * OUTPUT)  # the batch, and tanh's
    assert (second.holder, second.bytes) == ("losses", OUTPUT + 4)  # exp's, and the loss


def test_a_model_that_keeps_its_outputs_is_found_by_analyze() -> None:
    class Remembers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(64, 64)
            self.seen: list[Tensor] = []

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.fc(x)
            self.seen.append(y.detach().clone())
            return y

    model = Remembers()
    report = graphmem.analyze(model, batch(), target="cpu")
    (found,) = report.growth
    assert (found.kind, found.holder, found.bytes) == ("tensors", "seen", OUTPUT)
    assert found.source == line(Remembers.forward, "clone")
    assert model.seen == []


def test_gradients_that_keep_their_graph_are_named() -> None:
    weight = nn.Parameter(torch.ones(64, 64))
    kept: list[Tensor] = []

    def step() -> None:
        (gradient,) = torch.autograd.grad((weight**3).sum(), weight, create_graph=True)
        kept.append(gradient)

    (found,) = growth(step)
    assert (found.kind, found.holder) == ("graph", "kept")


def test_a_hook_that_keeps_activations_is_named_by_what_it_fills() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Tanh())
    seen: list[Tensor] = []
    model[0].register_forward_hook(lambda module, args, output: seen.append(output.detach()))

    def step() -> None:
        with torch.no_grad():
            model(batch())

    (found,) = growth(step)
    assert (found.kind, found.holder, found.bytes) == ("tensors", "seen", OUTPUT)


def test_gradients_with_a_graph_that_are_never_reset_are_named() -> None:
    model = nn.Linear(64, 1, bias=False)

    def step() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch tells of the cycle
            model(batch()).pow(2).sum().backward(create_graph=True)

    assert {found.holder for found in growth(step)} == {"weight.grad"}


def test_the_history_of_an_optimizer_grows_until_it_is_full() -> None:
    model = nn.Linear(64, 64, bias=False)

    def states(size: int) -> tuple[GrowthItem, ...]:
        def lbfgs(parameters: Any) -> torch.optim.LBFGS:
            return torch.optim.LBFGS(parameters, max_iter=3, max_eval=9, history_size=size)

        return graphmem.analyze(model, batch(), optimizer=lbfgs, target="cpu").growth

    (found,) = states(100)
    assert (found.kind, found.holder) == ("optimizer_states", None)
    # A step of 3 iterations adds 3 pairs of a direction and a difference, and each its rho.
    assert found.bytes == 3 * (2 * 64 * 64 * 4 + 4)


def test_the_states_of_an_optimizer_that_the_loop_names_are_one_growth_too() -> None:
    model = nn.Linear(64, 64, bias=False)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, max_eval=9)

    def loss() -> Tensor:
        optimizer.zero_grad()
        value: Tensor = model(batch()).pow(2).mean()
        value.backward()
        return value

    (found,) = growth(lambda: optimizer.step(loss))
    assert (found.kind, found.bytes) == ("optimizer_states", 3 * (2 * 64 * 64 * 4 + 4))


@pytest.mark.parametrize("detaches", [False, True])
def test_growth_is_what_a_real_run_grows_by(detaches: bool) -> None:
    def make() -> Callable[[], None]:
        model = nn.Sequential(nn.Linear(64, 128), nn.LayerNorm(128), nn.GELU(), nn.Dropout())
        kept: list[Tensor] = []

        def step() -> None:
            output = model(batch()).sum()
            kept.append(output.detach() if detaches else output)

        return step

    assert sum(found.bytes for found in growth(make())) == _grown(make())


def _grown(step: Callable[[], None]) -> int:
    """The bytes that the CPU's allocator gives out in a step, less those given back."""
    step()
    with torch.profiler.profile(profile_memory=True) as profile:
        step()
    events = profile.profiler.kineto_results.events()
    return sum(event.nbytes() for event in events if event.name() == "[memory]")


# -- what is no leak


def test_a_usual_loop_is_run_as_often_as_it_says_and_leaves_nothing() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Dropout())
    optimizer = torch.optim.AdamW(model.parameters())
    calls: list[int] = []

    def step() -> Tensor:
        calls.append(1)
        optimizer.zero_grad()
        loss: Tensor = model(batch()).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss

    assert growth(step) == []
    assert len(calls) == 2


def test_the_previous_output_is_no_leak_after_one_step_more() -> None:
    model = nn.Linear(64, 64)
    kept: deque[Tensor] = deque(maxlen=2)
    calls: list[int] = []

    def step() -> None:
        calls.append(1)
        kept.append(model(batch()))

    assert growth(step) == []
    assert len(calls) == 3  # two, and one to be sure


def test_the_step_that_makes_sure_changes_no_byte_of_the_report() -> None:
    model = nn.Linear(64, 64)

    def report(keep: Any) -> Report:
        return graphmem.record(lambda: keep(model(batch()).tanh().sum()), target="cpu")

    kept: list[Tensor] = []
    leaky = report(kept.append)
    assert len(kept) == 3
    assert [step.step for step in leaky.steps] == [1, 2]
    # The weights, what step 1 left (batch, tanh's, loss), and step 2's batch, linear's and tanh's.
    weights = (64 * 64 + 64) * 4
    assert leaky.peak.allocated_bytes == weights + (2 * OUTPUT + 4) + 3 * OUTPUT


def test_a_loop_without_data_for_one_step_more_is_told_what_was_seen() -> None:
    model = nn.Linear(64, 64)
    batches = iter([batch(), batch()])
    losses: list[Tensor] = []

    def step() -> None:
        losses.append(model(next(batches)).tanh().sum())

    (found,) = growth(step)
    assert (found.kind, found.times) == ("graph", 2)


def test_three_steps_and_more_see_the_same_growth_and_need_no_other() -> None:
    model = nn.Linear(64, 64)
    losses: list[Tensor] = []

    def step() -> None:
        losses.append(model(batch()).tanh().sum())

    for steps in (3, 4):
        losses.clear()
        (found,) = growth(step, steps=steps)
        assert (found.bytes, found.times) == (2 * OUTPUT + 4, steps)
        assert len(losses) == steps


# -- caches


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_a_cache_within_a_step_grows_by_its_bytes_a_token(target: str) -> None:
    @torch.no_grad()
    def generate() -> None:
        keys: list[Tensor] = [torch.randn(2, 4, 7, 16) for _ in range(3)]
        for _ in range(5):
            for layer in range(3):
                token = torch.randn(2, 4, 1, 16)
                keys[layer] = torch.cat([keys[layer], token], dim=2)

    (found,) = growth(generate, target=target)
    assert (found.kind, found.per, found.times, found.tensors) == ("cache", "turn", 5, 3)
    assert found.bytes == 3 * 2 * 4 * 16 * 4  # layers, batch, heads, head size, f32
    assert found.shape == (2, 4, 12, 16)
    assert found.source == line(generate, "torch.cat")


def test_a_cache_over_steps_grows_by_its_bytes_a_step() -> None:
    cache: list[Tensor] = []

    @torch.no_grad()
    def decode() -> None:
        token = torch.randn(2, 4, 1, 16)
        cache[:] = [torch.cat([cache[0], token], dim=2) if cache else token]

    (found,) = growth(decode)
    assert (found.kind, found.per, found.holder) == ("cache", "step", "cache")
    assert found.bytes == 2 * 4 * 16 * 4
    assert found.source == line(decode, "torch.cat")


def test_a_cache_of_full_length_does_not_grow() -> None:
    cache = torch.zeros(2, 4, 12, 16)

    @torch.no_grad()
    def generate() -> None:
        for position in range(5):
            cache[:, :, position] = torch.randn(2, 4, 16)

    assert growth(generate) == []


def test_generate_of_transformers_names_the_line_of_its_cache() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=128,
        vocab_size=100,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    model.generation_config.eos_token_id = None  # the tokens are not known
    tokens = torch.zeros(2, 8, dtype=torch.int64)

    def generate() -> None:
        model.generate(tokens, max_new_tokens=6, do_sample=False, pad_token_id=0)

    keys, values = growth(generate)[:2]
    for found in (keys, values):
        assert (found.kind, found.per, found.times) == ("cache", "turn", 5)
        assert found.bytes == 2 * 2 * 2 * 16 * 4  # layers, batch, heads, head size, f32
        assert (found.tensors, found.module) == (2, "model.layers.0.self_attn")
        assert (found.source or "").startswith("transformers/cache_utils.py:")
    assert keys.source != values.source
