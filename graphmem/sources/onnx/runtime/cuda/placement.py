"""Which nodes ONNX Runtime gives to its CUDA provider, and which stay on the CPU.

1. The CUDA provider is offered every node for whose element types it has a kernel.
2. It leaves some forms to the CPU: recurrent networks that cuDNN has not (``needs_cpu``).
3. Of the rest those stay on the CPU that read only what lies on the host anyway (mostly
   arithmetic on shapes): every input is a value that a kernel leaves on the host and that the
   CUDA kernel would not read there, a graph's input, or an initializer of up to 100 elements;
   none is in half precision or less.

Source: ``CUDAExecutionProvider::GetCapability`` in
onnxruntime/core/providers/cuda/cuda_execution_provider.cc; ``GetCpuPreferredNodes`` in
onnxruntime/core/framework/fallback_cpu_capability.cc.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import Node
from graphmem.sources.onnx.runtime.cuda.memory import host_inputs, host_outputs
from graphmem.sources.onnx.runtime.cuda.registry import Elements, has_kernel

SMALL_ELEMENTS = 100
"""``kSmallInitializerThreshold``."""

_HALF = frozenset(
    {
        *(ElementType.FLOAT16, ElementType.BFLOAT16),
        *(ElementType.FLOAT8E4M3FN, ElementType.FLOAT8E4M3FNUZ),
        *(ElementType.FLOAT8E5M2, ElementType.FLOAT8E5M2FNUZ),
    }
)
_ACTIVATIONS = {
    "LSTM": ("sigmoid", "tanh", "tanh") * 2,
    "GRU": ("sigmoid", "tanh") * 2,
    "RNN": ("tanh", "tanh"),
}
_PEEPHOLE = 7


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node with the element types of its inputs and outputs; ``implicit`` is read by bodies."""

    node: Node
    inputs: Elements
    outputs: Elements
    implicit: tuple[str, ...] = ()


def on_cuda(
    nodes: Sequence[Candidate], inputs: Collection[str], small: Collection[str]
) -> list[bool]:
    """Whether each node runs on the CUDA provider.

    Args:
        nodes: those of one graph, in the order in which they run.
        inputs: the graph's inputs.
        small: its initializers of up to ``SMALL_ELEMENTS``, and those of the graphs around it.
    """
    offered = [
        has_kernel(one.node, one.inputs, one.outputs) and not needs_cpu(one.node) for one in nodes
    ]
    preferred = _Preferred(nodes, offered, frozenset(inputs) | frozenset(small)).found()
    return [taken and at not in preferred for at, taken in enumerate(offered)]


def needs_cpu(node: Node) -> bool:
    """Whether the provider leaves a form of an operator to the CPU although it has a kernel.

    Source: ``RNNNeedFallbackToCPU``; that convolutions with uneven padding stay was tried with
    ONNX Runtime 1.31.1.
    """
    supported = _ACTIVATIONS.get(node.op)
    if supported is None or node.domain:
        return False
    given = node.attributes
    if any(given.get(name) for name in ("activation_alpha", "activation_beta", "clip")):
        return True
    asked = tuple(str(name).lower() for name in given.get("activations", ()))
    if asked != supported[: len(asked)]:
        return True
    if node.op == "GRU":
        return not given.get("linear_before_reset", 1 if node.version < 3 else 0)
    if node.op == "LSTM":
        has_peephole = len(node.inputs) > _PEEPHOLE and bool(node.inputs[_PEEPHOLE])
        return bool(given.get("input_forget")) or has_peephole
    return False


class _Preferred:
    """The nodes that stay on the CPU because what they read lies there."""

    def __init__(
        self, nodes: Sequence[Candidate], offered: Sequence[bool], anywhere: frozenset[str]
    ) -> None:
        self.nodes = nodes
        self.offered = offered
        self.anywhere = anywhere
        self.readers: dict[str, list[int]] = defaultdict(list)
        for at, one in enumerate(nodes):
            for name in (*one.node.inputs, *one.implicit):
                self.readers[name].append(at)

    def found(self) -> set[int]:
        on_host = set(self._left_on_host())
        waiting = sorted({at for name in on_host for at in self.readers[name]})
        seen: set[int] = set()
        found: set[int] = set()
        while waiting:
            at = heapq.heappop(waiting)
            if at in seen:
                continue
            seen.add(at)
            if self.offered[at] and not self._is_preferred(at, on_host):
                continue
            if self.offered[at]:
                found.add(at)
            outputs = [name for name in self.nodes[at].node.outputs if name]
            on_host.update(outputs)
            for reader in (reader for name in outputs for reader in self.readers[name]):
                heapq.heappush(waiting, reader)
        return found

    def _left_on_host(self) -> Iterator[str]:
        for one, taken in zip(self.nodes, self.offered, strict=True):
            if taken:
                yield from (one.node.outputs[at] for at in host_outputs(one.node))

    def _is_preferred(self, at: int, on_host: Collection[str]) -> bool:
        one = self.nodes[at]
        read_on_host = host_inputs(one.node)
        for position, (name, element) in enumerate(zip(one.node.inputs, one.inputs, strict=True)):
            if element in _HALF:
                return False
            if name in self.anywhere:
                continue
            if name not in on_host or position in read_on_host:
                return False
        return True
