"""An LSTM whose weights are quantized and whose inputs are as it runs: DynamicQuantizeLSTM."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphmem.sources.onnx.refusal import refused
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.microsoft.of_onnx import MICROSOFT, results
from graphmem.sources.onnx.rules.microsoft.quantized import (
    dynamically_quantized,
    integer_product,
)


class _Small(NamedTuple):
    """A quantized matrix [K, 4 * H] of one direction."""

    matrix: Tensor
    scale: Tensor
    zero: Tensor

    def product(self, call: Call, x: Tensor) -> Tensor:
        """``x @ matrix`` with x quantized as a whole."""
        small, scale, zero = dynamically_quantized(call, x)
        product = integer_product(call, small, self.matrix, zero, self.zero)
        return product.to(x.dtype) * (scale * self.scale)


class _Direction(NamedTuple):
    """One direction's weights: bias [4 * H] and peepholes [3 * H] as ONNX's LSTM has them."""

    w: _Small
    r: _Small
    bias: Tensor | None
    peepholes: Tensor | None


@rule("DynamicQuantizeLSTM", domain=MICROSOFT, constants=(8, 10))
def dynamic_quantize_lstm(
    call: Call,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    lengths: Tensor | None,
    initial_h: Tensor | None,
    initial_c: Tensor | None,
    p: Tensor | None,
    w_scale: Tensor,
    w_zero: Tensor,
    r_scale: Tensor,
    r_zero: Tensor,
) -> Any:
    """ONNX's LSTM; w is [directions, I, 4 * H] and r is [directions, H, 4 * H], in 8 bits.

    The input is quantized once as a whole, the hidden state at each step.
    """
    if call.get("activations") not in (None, *(("Sigmoid", "Tanh", "Tanh") * n for n in (1, 2))):
        raise refused(call, "only the default activations have a rule")
    hidden, batch = r.shape[1], x.shape[1]
    way = call.text("direction", "forward")
    sequences, hs, cs = [], [], []
    for d in range(w.shape[0]):
        side = _Direction(
            _Small(w[d], w_scale[d], w_zero[d]),
            _Small(r[d], r_scale[d], r_zero[d]),
            None if b is None else b[d, : 4 * hidden] + b[d, 4 * hidden :],
            None if p is None else p[d],
        )
        h = x.new_zeros(batch, hidden) if initial_h is None else initial_h[d]
        c = x.new_zeros(batch, hidden) if initial_c is None else initial_c[d]
        backwards = way == "reverse" or d == 1
        steps, h, c = _run(call, x, side, (h, c), lengths, backwards)
        sequences.append(steps)
        hs.append(h)
        cs.append(c)
    return results(call, torch.stack(sequences, 1), torch.stack(hs), torch.stack(cs))


def _run(
    call: Call,
    x: Tensor,
    side: _Direction,
    state: tuple[Tensor, Tensor],
    lengths: Tensor | None,
    backwards: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """All steps of one direction: the hidden states [S, B, H], the last one, the last cell.

    The state that a step quantizes is, as in ONNX Runtime, what the step before it wrote to the
    output: zeros for a sequence that has ended.
    """
    h, c = state
    order = _order(x, lengths, backwards)
    x = x if order is None else _ordered(x, order)
    flat = side.w.product(call, x.flatten(0, 1)).reshape(x.shape[0], x.shape[1], -1)
    inputs = flat if side.bias is None else flat + side.bias
    made, fed = [], h
    for step in range(x.shape[0]):
        gates = inputs[step] + side.r.product(call, fed)
        new_h, new_c = _cell(call, gates, c, side.peepholes)
        shown = new_h
        if lengths is not None:
            running = (lengths > step)[:, None]
            shown = torch.where(running, new_h, torch.zeros_like(new_h))
            new_h, new_c = torch.where(running, new_h, h), torch.where(running, new_c, c)
        made.append(shown)
        h, c = new_h, new_c
        fed = shown if call.node.outputs[0] else h
    steps = torch.stack(made)
    return steps if order is None else _ordered(steps, order), h, c


def _order(x: Tensor, lengths: Tensor | None, backwards: bool) -> Tensor | None:
    """[S, B]: which step comes when; each sequence from its own end, its padding in place."""
    if not backwards:
        return None
    steps = torch.arange(x.shape[0], device=x.device)[:, None]
    if lengths is None:
        return (x.shape[0] - 1 - steps).expand(x.shape[:2])
    from_end = lengths.long() - 1 - steps
    return torch.where(from_end >= 0, from_end, steps)


def _ordered(x: Tensor, order: Tensor) -> Tensor:
    return torch.gather(x, 0, order[:, :, None].expand(x.shape))


def _cell(call: Call, gates: Tensor, c: Tensor, peepholes: Tensor | None) -> tuple[Tensor, Tensor]:
    """One step from the sums [B, 4 * H] of input, output, forget and cell gate."""
    i, o, f, g = gates.chunk(4, -1)
    p = (None,) * 3 if peepholes is None else peepholes.chunk(3)
    i = torch.sigmoid(_clipped(call, _looked(i, p[0], c)))
    if call.integer("input_forget", 0):
        f = 1.0 - i
    else:
        f = torch.sigmoid(_clipped(call, _looked(f, p[2], c)))
    c = f * c + i * torch.tanh(_clipped(call, g))
    o = torch.sigmoid(_clipped(call, _looked(o, p[1], c)))
    return o * torch.tanh(c), c


def _looked(gate: Tensor, weight: Tensor | None, c: Tensor) -> Tensor:
    return gate if weight is None else gate + weight * c


def _clipped(call: Call, x: Tensor) -> Tensor:
    limit = call.get("clip")
    return x if limit is None else x.clamp(-limit, limit)
