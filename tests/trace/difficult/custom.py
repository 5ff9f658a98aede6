"""Operators and kernels that torch knows nothing of."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import graphmem
from tests.trace.difficult.cases import Difficult


@torch.library.custom_op("graphmem_difficult::scaled", mutates_args=())
def scaled(x: Tensor, factor: float) -> Tensor:
    return x * factor


@scaled.register_fake
def _(x: Tensor, factor: float) -> Tensor:
    return torch.empty_like(x)


def _scaled_setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.factor = inputs[1]


scaled.register_autograd(
    lambda ctx, gradient: (scaled(gradient, ctx.factor), None), setup_context=_scaled_setup
)


@torch.library.custom_op("graphmem_difficult::halves", mutates_args=())
def halves(x: Tensor) -> Tensor:
    """The first half of the columns. Only the rule below tells its size without running it."""
    return x[:, : x.shape[1] // 2].clone()


@graphmem.register_rule("graphmem_difficult::halves")
def _halves(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1] // 2)


@torch.library.custom_op("graphmem_difficult::gated", mutates_args=())
def gated(x: Tensor) -> Tensor:
    """Nothing tells its size; it is as large as its input."""
    return x * (x > 0)


gated.register_autograd(lambda ctx, gradient: gradient.clone())


def _halves_backward(ctx: Any, gradient: Tensor) -> Tensor:
    return torch.cat((gradient, torch.zeros_like(gradient)), 1)


halves.register_autograd(_halves_backward)


@graphmem.register_rule("tests.trace.difficult.custom.numpy_exp", scratch=lambda x: 4 * len(x))
def _numpy_exp(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def numpy_exp(x: Tensor) -> Tensor:
    """A kernel outside of torch: it reads and writes memory by itself."""
    return torch.from_numpy(np.exp(x.detach().numpy()))


class Exp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = numpy_exp(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return gradient * y


class WithFake(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = scaled(self.layer(x), 2.0)
        return y


class WithoutFake(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = halves(self.layer(x))
        return y


class Unruled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = gated(self.layer(x))
        return y


class Foreign(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = Exp.apply(self.layer(x))  # type: ignore[no-untyped-call]
        return y


def _rows() -> Tensor:
    return torch.randn(32, 64)


DIFFICULT = (
    Difficult("a custom operator with a fake kernel", WithFake, _rows),
    Difficult("a custom operator with a rule", WithoutFake, _rows),
    Difficult(
        "a custom operator without either",
        Unruled,
        _rows,
        kernels=frozenset({"aten::mul", "aten::gt", "graphmem_difficult::gated", "aten::_to_copy"}),
    ),
    Difficult(
        "a foreign kernel behind autograd.Function",
        Foreign,
        _rows,
        kernels=frozenset({"tests::trace"}),  # the memory of NumPy's results is not torch's
    ),
)
