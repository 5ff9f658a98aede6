"""Small models that are each difficult in one way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 32)
    )


def mlp_block() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + F.relu(layer(x))
        return x


class Tied(nn.Module):
    """A language model whose head is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(500, 64)
        self.body = nn.Linear(64, 64)
        self.head = nn.Linear(64, 500, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        logits = self.head(self.body(self.embedding(ids)))
        return F.cross_entropy(logits.flatten(0, 1), ids.flatten())


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.blocks = nn.ModuleList(mlp_block() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.reentrant)
        return x


class Scaled(torch.autograd.Function):
    """A custom function that saves its output and its input."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y, x)
        return y * 1

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        y, x = ctx.saved_tensors
        return grad * y + x


class WithFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = Scaled.apply(self.layer(x))  # type: ignore[no-untyped-call]
        return y


class SecondOrder(nn.Module):
    """A gradient penalty: backward through a backward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x).tanh().sum()
        (grad,) = torch.autograd.grad(y, x, create_graph=True)
        penalty: Tensor = y + (grad**2).sum()
        return penalty


class Mapped(nn.Module):
    """torch.func inside of a forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.func.vmap(lambda row: torch.sin(row) * 2)(self.layer(x))
        slope = torch.func.grad(lambda w: (x @ w).tanh().sum())(self.layer.weight)
        return rows.sum() + slope.sum()


class NotContiguous(nn.Module):
    """Linear layers on a transposed input add their bias apart."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 256)
        self.second = nn.Linear(256, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first(x.transpose(0, 1)))
        return self.second(y.transpose(0, 1))


class SpelledOut(NotContiguous):
    """The same with the additions in Python, where they are not in place."""

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(x.transpose(0, 1) @ self.first.weight.t() + self.first.bias)
        return y.transpose(0, 1) @ self.second.weight.t() + self.second.bias


@dataclass
class Batch:
    x: Tensor
    mask: Tensor


class OnBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, batch: Batch) -> dict[str, Any]:
        y = self.layer(batch.x)
        if batch.mask.all():
            return {"y": y}
        return {"y": y * batch.mask.unsqueeze(-1), "list": [y]}


def partly_frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
    model[0].requires_grad_(False)
    return model


def hooked() -> nn.Module:
    first = nn.Linear(64, 128)
    model = nn.Sequential(first, nn.ReLU(), nn.Linear(128, 64))
    first.weight.register_hook(lambda grad: grad * 2)
    model[2].register_forward_hook(lambda module, args, output: output + 1)
    return model


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    )
