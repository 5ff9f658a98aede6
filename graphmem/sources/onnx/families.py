"""Registering rules that differ only in the torch function that they call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor

from graphmem.sources.onnx.registry import Call, rule

Unary = Callable[[Tensor], Tensor]
Binary = Callable[[Tensor, Tensor], Tensor]


def unary(op: str, function: Unary) -> None:
    """Register an operator of one input and no attributes."""

    def run(call: Call, x: Tensor) -> Tensor:
        return function(x)

    _register(op, 1, run, f"``{_name(function)}(x)``.")


def binary(op: str, function: Binary, since: int = 7) -> None:
    """Register an operator whose two inputs broadcast as in NumPy, as of opset 7.

    Before, the second one broadcasts as attributes say (``aligned``).
    """

    def legacy(call: Call, a: Tensor, b: Tensor) -> Tensor:
        return function(a, aligned(call, a, b))

    def run(call: Call, a: Tensor, b: Tensor) -> Tensor:
        return function(a, b)

    if since == 7:
        _register(op, 1, legacy, f"``{_name(function)}(a, b)``, b aligned by ``axis``.")
    _register(op, since, run, f"``{_name(function)}(a, b)``.")


def aligned(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """The second input of an operator before opset 7, shaped so that NumPy's rules suffice.

    With ``broadcast=1, axis=k`` its dimensions stand for those of ``a`` from the k-th on;
    without ``axis`` for the last ones.
    """
    axis = call.get("axis")
    if axis is None or not call.integer("broadcast", 0):
        return b
    after = a.ndim - (axis % a.ndim) - b.ndim
    return b.reshape(b.shape + (1,) * after)


def _register(op: str, since: int, function: Callable[..., Tensor], doc: str) -> None:
    function.__doc__ = doc
    rule(op, since=since)(function)


def _name(function: Callable[..., Tensor]) -> str:
    called = function.args[0] if isinstance(function, partial) else function
    return str(called.__name__).strip("_")
