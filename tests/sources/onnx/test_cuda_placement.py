"""Which nodes ONNX Runtime gives to its CUDA provider."""

from __future__ import annotations

from typing import Any

import pytest

from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import Node
from graphmem.sources.onnx.runtime.cuda.placement import Candidate, needs_cpu, on_cuda
from graphmem.sources.onnx.runtime.cuda.registry import has_kernel

FLOAT, INT64, HALF = ElementType.FLOAT, ElementType.INT64, ElementType.FLOAT16


def node(op: str, inputs: str = "x", outputs: str = "y", version: int = 17, **given: Any) -> Node:
    return Node(op, op, "", version, tuple(inputs.split()), tuple(outputs.split()), given)


@pytest.mark.parametrize(
    ("op", "version", "element", "has"),
    [
        ("Exp", 17, FLOAT, True),
        ("Exp", 17, ElementType.INT32, False),  # Exp is of floats
        ("Acos", 17, FLOAT, False),  # no kernel at all
        ("Conv", 17, FLOAT, True),
        ("Conv", 17, ElementType.BFLOAT16, False),  # since opset 22
        ("Conv", 22, ElementType.BFLOAT16, True),
        ("Relu", 17, None, True),  # a type that is not known excludes nothing
    ],
)
def test_kernels_by_version_and_type(
    op: str, version: int, element: ElementType | None, has: bool
) -> None:
    assert has_kernel(node(op, version=version), [element], [element]) is has


@pytest.mark.parametrize(
    ("op", "given", "stays"),
    [
        ("GRU", {"linear_before_reset": 1}, False),
        ("GRU", {"linear_before_reset": 0}, True),  # as measured: "Fallback to CPU"
        ("GRU", {"linear_before_reset": 1, "clip": 3.0}, True),
        ("LSTM", {"activations": ("Sigmoid", "Tanh", "Tanh")}, False),
        ("LSTM", {"activations": ("Sigmoid", "Relu", "Tanh")}, True),
        ("LSTM", {"input_forget": 1}, True),
        ("RNN", {}, False),
        ("Conv", {"pads": (0, 0, 1, 1)}, False),
    ],
)
def test_recurrent_networks_that_cudnn_has_not(op: str, given: dict[str, Any], stays: bool) -> None:
    assert needs_cpu(node(op, **given)) is stays


def test_a_peephole_stays_on_the_cpu() -> None:
    assert needs_cpu(node("LSTM", "x w r b l h c p"))
    assert not needs_cpu(node("LSTM", "x w r b l h c"))


def candidates(element: ElementType) -> list[Candidate]:
    return [
        Candidate(node("Shape", "x", "s"), [element], [INT64]),
        Candidate(node("Mul", "s two", "t"), [INT64, INT64], [INT64]),
        Candidate(node("Cast", "t", "u", to=1), [INT64], [element]),
        Candidate(node("Mul", "u x", "y"), [element, element], [element]),
    ]


def test_arithmetic_on_shapes_stays_on_the_cpu() -> None:
    # Shape leaves s on the host; Mul and Cast read nothing else; the last one reads x, an input,
    # which may be anywhere
    assert on_cuda(candidates(FLOAT), ["x"], ["two"]) == [True, False, False, False]
    assert on_cuda(candidates(FLOAT), [], ["two"]) == [True, False, False, True]


def test_half_precision_does_not_stay() -> None:
    assert on_cuda(candidates(HALF), ["x"], ["two"]) == [True, False, False, True]


def test_a_large_initializer_is_not_brought_to_the_cpu() -> None:
    assert on_cuda(candidates(FLOAT), ["x"], []) == [True, True, True, True]
