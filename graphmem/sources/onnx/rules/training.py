"""Optimizer steps of ai.onnx.preview.training.

Inputs are a learning rate, a count of updates, then tensors, their gradients and states: all
tensors first, then all gradients, and so on. Results are the new tensors, then new states.
Source of the formulas: the operators' documentation.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from graphmem.sources.onnx import values
from graphmem.sources.onnx.refusal import refused
from graphmem.sources.onnx.registry import Call, rule

_DOMAIN = "ai.onnx.preview.training"
_Step = Callable[..., tuple[Tensor, ...]]


def _each(inputs: tuple[Tensor, ...], kinds: int, step: _Step) -> tuple[Tensor, ...]:
    """A step of each tensor, with its gradient and states, grouped by kind again."""
    count = len(inputs) // kinds
    made = [step(*inputs[i::count]) for i in range(count)]
    return tuple(one[kind] for kind in range(kinds - 1) for one in made)


@rule("Adagrad", domain=_DOMAIN)
def adagrad(call: Call, rate: Tensor, updates: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Steps over the root of summed squared gradients."""
    slowed = rate / (1 + updates * call.number("decay_factor", 0.0))
    epsilon = call.number("epsilon", 1e-6)

    def step(x: Tensor, gradient: Tensor, squares: Tensor) -> tuple[Tensor, ...]:
        g = call.number("norm_coefficient", 0.0) * x + gradient
        squares = squares + g * g
        return x - slowed * g / (squares.sqrt() + epsilon), squares

    return _each(inputs, 3, step)


@rule("Adam", domain=_DOMAIN)
def adam(call: Call, rate: Tensor, updates: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Steps by running means of gradients and of their squares."""
    alpha, beta = call.number("alpha", 0.9), call.number("beta", 0.999)
    epsilon, count = call.number("epsilon", 1e-6), values.integer(updates)
    if count > 0:
        rate = rate * (math.sqrt(1 - beta**count) / (1 - alpha**count))

    def step(x: Tensor, gradient: Tensor, mean: Tensor, squares: Tensor) -> tuple[Tensor, ...]:
        g = call.number("norm_coefficient", 0.0) * x + gradient
        mean = alpha * mean + (1 - alpha) * g
        squares = beta * squares + (1 - beta) * (g * g)
        x = x - rate * (mean / (squares.sqrt() + epsilon))
        return (1 - call.number("norm_coefficient_post", 0.0)) * x, mean, squares

    return _each(inputs, 4, step)


@rule("Momentum", domain=_DOMAIN)
def momentum(call: Call, rate: Tensor, updates: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Steps by a running sum of gradients, or one step ahead of it."""
    alpha = call.number("alpha")
    beta = call.number("beta") if values.integer(updates) > 0 else 1.0
    ahead = call.text("mode") == "nesterov"

    def step(x: Tensor, gradient: Tensor, sums: Tensor) -> tuple[Tensor, ...]:
        g = call.number("norm_coefficient") * x + gradient
        sums = alpha * sums + beta * g
        return x - rate * (g + alpha * sums if ahead else sums), sums

    return _each(inputs, 3, step)


@rule("Gradient", domain=_DOMAIN)
def gradient(call: Call, *inputs: Tensor) -> Tensor:
    """Not computed: it names values of the graph around it, and torch has gradients itself."""
    raise refused(call, "it asks for gradients of other nodes; analyze the model with training")
