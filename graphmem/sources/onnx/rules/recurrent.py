"""Recurrent layers, of one layer and one or two directions.

Inputs are [T, B, I] (``layout`` 0) or [B, T, I]; weights [D, gates * H, I], recurrences
[D, gates * H, H], biases [D, 2 * gates * H]. Results are Y [T, D, B, H] and last states
[D, B, H]. Where the layer is one of torch's, torch's fused one runs; else steps are unrolled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphmem.sources.onnx import values
from graphmem.sources.onnx.bounds import or_bound
from graphmem.sources.onnx.refusal import refused
from graphmem.sources.onnx.registry import Call, rule

Activation = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]

_ACTIVATIONS: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "relu": lambda x, a, b: torch.relu(x),
    "tanh": lambda x, a, b: torch.tanh(x),
    "sigmoid": lambda x, a, b: torch.sigmoid(x),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: F.leaky_relu(x, a),
    "thresholdedrelu": lambda x, a, b: F.threshold(x, a, 0.0),
    "scaledtanh": lambda x, a, b: a * torch.tanh(b * x),
    "hardsigmoid": lambda x, a, b: torch.clamp(a * x + b, 0, 1),
    "elu": lambda x, a, b: F.elu(x, a),
    "softsign": lambda x, a, b: F.softsign(x),
    "softplus": lambda x, a, b: F.softplus(x),
}
_ALPHA = {
    **{"affine": 1.0, "leakyrelu": 0.01, "thresholdedrelu": 1.0, "scaledtanh": 1.0},
    **{"hardsigmoid": 0.2, "elu": 1.0},
}
_BETA = {"affine": 0.0, "scaledtanh": 1.0, "hardsigmoid": 0.5}
"""Defaults of the activations that have parameters. Source: the operators HardSigmoid,
LeakyRelu, ThresholdedRelu and Elu, which the documentation of RNN refers to."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer's inputs, time first; ``bias`` and states are given or zeros."""

    x: Tensor
    w: Tensor
    r: Tensor
    bias: Tensor
    states: tuple[Tensor, ...]
    lengths: Tensor | None
    has_bias: bool

    def summed_bias(self, direction: int) -> Tensor:
        """The biases of input and state together."""
        of_input, of_state = self.bias[direction].chunk(2)
        return of_input + of_state


def _layer(
    call: Call,
    tensors: tuple[Tensor, Tensor, Tensor],
    bias: Tensor | None,
    lengths: Tensor | None,
    states: Sequence[Tensor | None],
) -> _Layer:
    """The layer with its defaults filled in; lengths as long as the input are none."""
    x, w, r = tensors
    batched = call.integer("layout", 0) == 1
    x = x.transpose(0, 1) if batched else x
    shape = (w.shape[0], x.shape[1], r.shape[2])
    given = tuple(
        x.new_zeros(shape) if s is None else s.transpose(0, 1).contiguous() if batched else s
        for s in states
    )
    if lengths is not None and _is_full(call, lengths, x.shape[0]):
        lengths = None
    made = w.new_zeros(w.shape[0], 2 * w.shape[1]) if bias is None else bias
    return _Layer(x, w, r, made, given, lengths, bias is not None)


def _is_full(call: Call, lengths: Tensor, longest: int) -> bool:
    """Whether no sequence is shorter than the input; an analysis takes them so."""
    return or_bound(
        lambda: all(length == longest for length in values.integers(lengths)),
        lambda: True,
        call,
        what="the lengths of sequences",
        assumed=f"all are {longest}",
    )


def _directions(call: Call) -> tuple[bool, ...]:
    """Of each direction whether it runs backwards."""
    name = call.text("direction", "forward").lower()
    return {"reverse": (True,), "bidirectional": (False, True)}.get(name, (False,))


def _names(call: Call, default: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The names of each direction's activations, in lower case."""
    count = len(_directions(call))
    names = tuple(name.lower() for name in call.get("activations") or default * count)
    each = len(default)
    if len(names) < each * count:
        names = names * count
    return [names[i * each : (i + 1) * each] for i in range(count)]


def _activations(call: Call, default: tuple[str, ...]) -> list[list[Activation]]:
    """Each direction's activations; parameters go to those that have some, in order.

    What gates take in is clipped; the cell of an LSTM is not, as in ONNX Runtime.
    """
    alphas, betas = iter(call.get("activation_alpha", ())), iter(call.get("activation_beta", ()))
    clips = (call.get("clip"), call.get("clip"), None)
    return [
        [_activation(call, *one, alphas, betas) for one in zip(names, clips, strict=False)]
        for names in _names(call, default)
    ]


def _activation(
    call: Call, name: str, clip: float | None, alphas: Iterator[float], betas: Iterator[float]
) -> Activation:
    function = _ACTIVATIONS.get(name)
    if function is None:
        raise refused(call, f"activation {name} is none of ONNX's")
    alpha = next(alphas, _ALPHA[name]) if name in _ALPHA else 0.0
    beta = next(betas, _BETA[name]) if name in _BETA else 0.0

    def run(x: Tensor) -> Tensor:
        return function(x if clip is None else x.clamp(-clip, clip), alpha, beta)

    return run


def _results(call: Call, y: Tensor, last: Sequence[Tensor]) -> Any:
    """Y [T, D, B, H] and last states [D, B, H], batch first if the layout says so."""
    if call.integer("layout", 0) == 1:
        y, last = y.permute(2, 0, 1, 3), [state.transpose(0, 1) for state in last]
    return (y, *last)[: call.outputs] if call.outputs > 1 else y


def _fused(
    call: Call, layer: _Layer, function: Callable[..., tuple[Tensor, ...]], order: Sequence[int]
) -> Any:
    """Torch's layer; its gates lie in another order than ONNX's."""
    directions = _directions(call)
    reverse = directions == (True,)
    x = layer.x.flip(0) if reverse else layer.x
    parameters: list[Tensor] = []
    for d in range(len(directions)):
        parts = [layer.w[d], layer.r[d], *(layer.bias[d].chunk(2) if layer.has_bias else ())]
        parameters += [_ordered(part, order) for part in parts]
    states = layer.states if len(layer.states) > 1 else layer.states[0]
    both = len(directions) == 2
    y, *last = function(x, states, parameters, layer.has_bias, 1, 0.0, call.training, both, False)
    y = y.flip(0) if reverse else y
    return _results(call, y.unflatten(2, (len(directions), -1)).transpose(1, 2), last)


def _ordered(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """Gates along the first axis in another order."""
    if len(order) == 1:
        return tensor
    gates = tensor.chunk(len(order))
    return torch.cat([gates[i] for i in order])


def _unrolled(call: Call, layer: _Layer, step_of: Callable[[int], tuple[Tensor, Step]]) -> Any:
    """Step by step. ``step_of`` gives a direction's products with the input, and its step."""
    outputs, lasts = [], []
    for d, backwards in enumerate(_directions(call)):
        inputs, step = step_of(d)
        y, last = _run(inputs, step, tuple(s[d] for s in layer.states), layer.lengths, backwards)
        outputs.append(y)
        lasts.append(last)
    last_states = [torch.stack(states) for states in zip(*lasts, strict=True)]
    return _results(call, torch.stack(outputs, dim=1), last_states)


def _run(
    inputs: Tensor,
    step: Step,
    states: tuple[Tensor, ...],
    lengths: Tensor | None,
    backwards: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """All steps of a direction: outputs [T, B, H], zero after a sequence's end."""
    outputs: dict[int, Tensor] = {}
    steps = range(inputs.shape[0])
    for t in reversed(steps) if backwards else steps:
        new = step(inputs[t], states)
        if lengths is None:
            states, outputs[t] = new, new[0]
            continue
        runs = (t < lengths).unsqueeze(1)
        states = tuple(torch.where(runs, a, b) for a, b in zip(new, states, strict=True))
        outputs[t] = new[0] * runs
    return torch.stack([outputs[t] for t in steps]), states


@rule("RNN", constants=(5,))
def rnn(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> Any:
    """``h = f(x W + h R + b)``."""
    layer = _layer(call, (x, w, r), b, lengths, [h])
    names = {name for one in _names(call, ("tanh",)) for name in one}
    if layer.lengths is None and not call.has("clip") and names in ({"tanh"}, {"relu"}):
        function = torch._VF.rnn_tanh if names == {"tanh"} else torch._VF.rnn_relu
        return _fused(call, layer, function, (0,))
    functions = _activations(call, ("tanh",))

    def step_of(d: int) -> tuple[Tensor, Step]:
        (f,) = functions[d]
        inputs = F.linear(layer.x, layer.w[d], layer.summed_bias(d))

        def step(x: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (f(x + F.linear(states[0], layer.r[d])),)

        return inputs, step

    return _unrolled(call, layer, step_of)


@rule("GRU", constants=(5,))
def gru(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> Any:
    """Gates z, r, h; torch's has r, z, n and applies the reset after the product."""
    layer = _layer(call, (x, w, r), b, lengths, [h])
    default = ("sigmoid", "tanh")
    after = call.integer("linear_before_reset", 0) == 1
    plain = all(names == default for names in _names(call, default))
    if after and plain and layer.lengths is None and not call.has("clip"):
        return _fused(call, layer, torch._VF.gru, (1, 0, 2))
    functions = _activations(call, default)

    def step_of(d: int) -> tuple[Tensor, Step]:
        f, g = functions[d]
        of_input, of_state = layer.bias[d].chunk(2)
        size = layer.r.shape[2]
        gates, new = layer.r[d].split([2 * size, size])
        gates_bias, new_bias = of_state.split([2 * size, size])

        def step(x: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            (state,) = states
            gated, rest = x.split([2 * size, size], dim=-1)
            update, reset = f(gated + F.linear(state, gates, gates_bias)).chunk(2, dim=-1)
            if after:
                found = g(rest + reset * F.linear(state, new, new_bias))
            else:
                found = g(rest + F.linear(reset * state, new, new_bias))
            return ((1 - update) * found + update * state,)

        return F.linear(layer.x, layer.w[d], of_input), step

    return _unrolled(call, layer, step_of)


@rule("LSTM", constants=(5, 6))
def lstm(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    c: Tensor | None = None,
    p: Tensor | None = None,
) -> Any:
    """Gates i, o, f, c, with peepholes [D, 3 * H] to the cell; torch's has i, f, g, o."""
    layer = _layer(call, (x, w, r), b, lengths, [h, c])
    default = ("sigmoid", "tanh", "tanh")
    coupled = call.integer("input_forget", 0) == 1
    plain = all(names == default for names in _names(call, default))
    plain = plain and p is None and not coupled and not call.has("clip")
    if plain and layer.lengths is None:
        return _fused(call, layer, torch._VF.lstm, (0, 2, 3, 1))
    functions = _activations(call, default)

    def step_of(d: int) -> tuple[Tensor, Step]:
        inputs = F.linear(layer.x, layer.w[d], layer.summed_bias(d))
        holes = None if p is None else p[d]
        return inputs, _lstm_step(layer.r[d], holes, functions[d], coupled=coupled)

    return _unrolled(call, layer, step_of)


def _lstm_step(
    recurrent: Tensor, holes: Tensor | None, functions: Sequence[Activation], *, coupled: bool
) -> Step:
    """A step of a hidden state and a cell."""
    f, g, h = functions
    seen = None if holes is None else holes.chunk(3)

    def step(x: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        state, cell = states
        i, o, forget, new = (x + F.linear(state, recurrent)).chunk(4, dim=-1)
        if seen is not None:
            i, forget = i + seen[0] * cell, forget + seen[2] * cell
        i = f(i)
        kept = 1 - i if coupled else f(forget)
        cell = kept * cell + i * g(new)
        if seen is not None:
            o = o + seen[1] * cell
        return f(o) * h(cell), cell

    return step
