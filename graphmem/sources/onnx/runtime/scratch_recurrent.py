"""What recurrent networks allocate for themselves while they run, in fp32."""

from __future__ import annotations

from graphmem.sources.onnx.model import Node
from graphmem.sources.onnx.runtime.calls import NONE, Rule, Scratch, Shapes


def _lstm(node: Node, shapes: Shapes) -> Scratch:
    """The states and gates of each direction, in fp32.

    Input [S, B, I], R [directions, 4 * H, H]. Outputs that are left out are made here.
    Source: ``UniDirectionalLstm<T>::AllocateBuffers`` and ``ComputeImpl`` in
    core/providers/cpu/rnn/uni_directional_lstm.cc, ``DeepCpuLstmOp::ComputeImpl``.
    """
    given, recurrent = shapes.given(0), shapes.given(2)
    if given is None or recurrent is None:
        return NONE
    steps, batch, features = given
    hidden, state = 4 * recurrent[2], 4 * recurrent[2] * batch
    missing = [p for p in (1, 2) if not _has_output(node, p)]
    blocks = [recurrent[0] * state for _ in missing]
    for direction in _directions(node):
        blocks += [hidden, hidden, state, state, state, 4 * state * steps]
        blocks += [hidden] * 4 if shapes.has(3) else []
        blocks += [4 * steps * batch * features, state * steps] if direction == "reverse" else []
        blocks += [hidden] * 3 if shapes.has(7) else []
    if not shapes.has(4):
        blocks += [4 * batch] * recurrent[0]
    return Scratch(tuple(blocks))


def _directions(node: Node) -> tuple[str, ...]:
    direction = str(node.attributes.get("direction", "forward"))
    return ("forward", "reverse") if direction == "bidirectional" else (direction,)


def _gru(node: Node, shapes: Shapes) -> Scratch:
    """The states and gates of each direction, in fp32.

    Input [S, B, I], R [directions, 3 * H, H]. A last state that is left out is made here.
    Source: ``UniDirectionalGru<T>::AllocateBuffers`` and ``DeepCpuGruOp::ComputeImpl`` in
    core/providers/cpu/rnn/deep_cpu_gru.cc.
    """
    given, recurrent = shapes.given(0), shapes.given(2)
    if given is None or recurrent is None:
        return NONE
    steps, batch, features = given
    state = 4 * recurrent[2] * batch
    is_linear = bool(node.attributes.get("linear_before_reset"))
    blocks = [] if _has_output(node, 1) else [recurrent[0] * state]
    for direction in _directions(node):
        blocks += [state, state]
        blocks += [state] * (4 if is_linear else 3) if shapes.has(3) else []
        blocks += [state] if is_linear else []
        blocks.append(3 * state * steps)
        blocks += [4 * steps * batch * features, state * steps] if direction == "reverse" else []
    if not shapes.has(4):
        blocks += [4 * batch] * recurrent[0]
    return Scratch(tuple(blocks))


def _rnn(node: Node, shapes: Shapes) -> Scratch:
    """All states if they are no output, and the product of all steps with one weight, in fp32.

    Input [S, B, I], R [directions, H, H]: [S, directions, B, H] and [S, B, H].
    Source: ``RNN<float>::Compute`` in core/providers/cpu/rnn/rnn.cc.
    """
    given, recurrent = shapes.given(0), shapes.given(2)
    if given is None or recurrent is None:
        return NONE
    product = 4 * given[0] * given[1] * recurrent[2]
    states = [] if _has_output(node, 0) else [recurrent[0] * product]
    return Scratch((*states, product))


def _has_output(node: Node, position: int) -> bool:
    return position < len(node.outputs) and bool(node.outputs[position])


RECURRENT: dict[tuple[str, str], Rule] = {
    ("", "LSTM"): _lstm,
    ("", "GRU"): _gru,
    ("", "RNN"): _rnn,
}
