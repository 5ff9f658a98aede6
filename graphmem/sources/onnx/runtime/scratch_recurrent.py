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
    missing = [p for p in (1, 2) if p >= len(node.outputs) or not node.outputs[p]]
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


RECURRENT: dict[tuple[str, str], Rule] = {("", "LSTM"): _lstm}
