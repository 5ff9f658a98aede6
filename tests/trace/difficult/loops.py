"""Loops of the user's own: several optimizers, copies, environments, graphs that live on."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, TensorDataset

from tests.trace.difficult.cases import Loop

Step = Callable[[], Any]


def _mlp(width: int = 64, out: int = 64) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, out))


def gan() -> Step:
    generator, critic = _mlp(16, 32), _mlp(32, 1)
    first = torch.optim.Adam(generator.parameters())
    second = torch.optim.Adam(critic.parameters())

    def step() -> None:
        second.zero_grad()
        fake = generator(torch.randn(64, 16))
        loss = (
            F.softplus(critic(fake.detach())).mean()
            + F.softplus(-critic(torch.randn(64, 32))).mean()
        )
        loss.backward()
        second.step()
        first.zero_grad()
        F.softplus(-critic(fake)).mean().backward()
        first.step()

    return step


def gradient_penalty() -> Step:
    """A critic whose gradient by its input is part of the loss."""
    critic = _mlp(32, 1)
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        mixed = torch.randn(64, 32, requires_grad=True)
        (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        ((slope.norm(dim=1) - 1) ** 2).mean().backward()
        optimizer.step()

    return step


def ema() -> Step:
    """A copy of the model whose parameters follow it, by hand."""
    model = _mlp()
    follower = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(32, 64)).sum().backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(follower.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.01)

    return step


def averaged() -> Step:
    """The same by ``torch.optim.swa_utils``."""
    model = _mlp()
    follower = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(32, 64)).sum().backward()
        optimizer.step()
        follower.update_parameters(model)

    return step


def policy_gradient() -> Step:
    """Episodes against an environment in Python, which ends them by itself."""
    policy = _mlp(4, 2)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)

    def step() -> None:
        state, logs, rewards = torch.zeros(4), [], []
        for number in range(20):
            choice = Categorical(logits=policy(state))
            action = choice.sample()
            logs.append(choice.log_prob(action))
            state = torch.randn(4) * 0.1
            rewards.append(1.0)
            if number > 10:
                break
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
        loss = -(torch.stack(logs) * returns).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def q_learning() -> Step:
    """A replay buffer, a target network, and actions by item()."""
    online, target = _mlp(4, 2), _mlp(4, 2).requires_grad_(False)
    optimizer = torch.optim.SGD(online.parameters(), lr=0.1)
    memory: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=64)

    def step() -> None:
        for _ in range(16):
            state = torch.randn(4)
            with torch.no_grad():
                action = online(state).argmax()
            memory.append((state, action, 1.0 if int(action) else 0.0))
        states = torch.stack([s for s, _, _ in memory])
        actions = torch.stack([a for _, a, _ in memory])
        rewards = torch.tensor([r for _, _, r in memory])
        with torch.no_grad():
            goal = rewards + 0.99 * target(states).max(1).values
        value = online(states).gather(1, actions[:, None]).squeeze(1)
        optimizer.zero_grad()
        F.smooth_l1_loss(value, goal).backward()
        optimizer.step()

    return step


def graph_kept() -> Step:
    """Losses whose graphs are kept over the iterations."""
    model = _mlp()
    losses: list[Tensor] = []

    def step() -> None:
        losses.append(model(torch.randn(32, 64)).square().mean())
        losses[-1].backward()

    return step


def retained() -> Step:
    """Two backwards through one graph."""
    model = _mlp()

    def step() -> None:
        model.zero_grad()
        y = model(torch.randn(32, 64))
        y.mean().backward(retain_graph=True)
        y.square().mean().backward()

    return step


def truncated() -> Step:
    """Backpropagation through time over pieces of a sequence."""
    cell, head = nn.GRUCell(16, 32), nn.Linear(32, 1)
    optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)

    def step() -> None:
        state = torch.zeros(8, 32)
        for piece in torch.randn(12, 8, 16).split(4):
            state = state.detach()
            for x in piece:
                state = cell(x, state)
            optimizer.zero_grad()
            head(state).mean().backward()
            optimizer.step()

    return step


def inner_loop() -> Step:
    """Learning to learn: a step of the weights inside of the graph."""
    model = nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        weights: dict[str, Tensor] = dict(model.named_parameters())
        loss = torch.func.functional_call(model, weights, (torch.randn(8, 16),)).square().mean()
        grads = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        moved = {n: w - 0.1 * g for (n, w), g in zip(weights.items(), grads, strict=True)}
        optimizer.zero_grad()
        torch.func.functional_call(model, moved, (torch.randn(8, 16),)).square().mean().backward()
        optimizer.step()

    return step


class Prefetcher:
    """Copies the next batch to the GPU on a stream of its own while this one is used."""

    def __init__(self, loader: DataLoader[Any], device: str) -> None:
        self.batches, self.device = iter(loader), device
        self.stream = torch.cuda.Stream() if device == "cuda" else None
        self.next = self._copied()

    def _copied(self) -> list[Tensor] | None:
        batch = next(self.batches, None)
        if batch is None:
            return None
        with torch.cuda.stream(self.stream):
            return [part.to(self.device, non_blocking=True) for part in batch]

    def __iter__(self) -> Iterator[list[Tensor]]:
        while self.next is not None:
            if self.stream is not None:
                torch.cuda.current_stream().wait_stream(self.stream)
            batch, self.next = self.next, self._copied()
            yield batch


def prefetched(device: str = "cuda") -> Step:
    """Batches of a DataLoader, copied ahead."""
    model = _mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(128, 64), torch.randn(128, 64))

    def step() -> None:
        model.to(device)
        for x, y in Prefetcher(DataLoader(data, batch_size=32), device):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()

    return step


LOOPS = (
    Loop("a GAN with two optimizers", gan),
    Loop("a gradient penalty", gradient_penalty),
    Loop("an EMA copy", ema),
    Loop("an averaged model", averaged),
    Loop("policy gradients", policy_gradient),
    Loop(
        "Q-learning with a replay buffer",
        q_learning,
        kernels=frozenset({"aten::smooth_l1_loss"}),
    ),
    Loop("a graph kept over iterations", graph_kept),
    Loop("retain_graph", retained),
    Loop("truncated backpropagation through time", truncated),
    Loop("a loop inside of the graph", inner_loop),
    Loop("batches copied ahead to the GPU", prefetched, real=False),
)
