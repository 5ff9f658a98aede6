"""Indices and choices: the node tests, negative indices, ties, gradients, and bounds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import graphmem
from graphmem.errors import ValueNeededError
from tests.sources.onnx import backend
from tests.sources.onnx.text_graphs import analysis, compute, module, node_tests, notes, sizes

_OPERATORS = (
    *("Slice", "Gather", "GatherElements", "GatherND", "Scatter", "ScatterElements", "ScatterND"),
    *("TensorScatter", "Where", "ReverseSequence", "NonZero", "Compress", "TopK", "Unique"),
)


@pytest.mark.parametrize("name", node_tests(*_OPERATORS))
def test_the_node_tests_pass(name: str) -> None:
    assert backend.run_case(backend.cases()[name]) is None


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(0, 5, 1), (-3, 100, 1), (4, 1, -1), (-1, -100, -2), (3, 3, 1), (2, 4, -1), (-100, 2, 1)],
)
def test_a_slice_is_pythons(start: int, end: int, step: int) -> None:
    text = "g (float[5] x, int64[1] s, int64[1] e, int64[1] a, int64[1] t) => (y) " + (
        "{ y = Slice(x, s, e, a, t) }"
    )
    x = torch.arange(5.0)
    made = compute(text, x, *(torch.tensor([n]) for n in (start, end, 0, step)))
    assert made.tolist() == x.tolist()[start:end:step]


def test_a_slice_of_opset_1_has_attributes() -> None:
    text = "g (float[2,3] x) => (y) { y = Slice<starts=[1], ends=[1000], axes=[1]>(x) }"
    assert compute(text, torch.arange(6.0).reshape(2, 3), opset=1).tolist() == [[1, 2], [4, 5]]


_EMBEDDING = """g (int64[n] ids) => (y) <float[4,2] table={0,1,2,3,4,5,6,7}> {
    y = Gather(table, ids)
}"""


def test_a_gather_of_a_weight_is_an_embedding_and_takes_negative_indices() -> None:
    made = module(_EMBEDDING)
    assert made(torch.tensor([1, -1])).tolist() == [[2, 3], [6, 7]]
    assert made(torch.tensor([1, 3])).grad_fn.name() == "EmbeddingBackward0"


def test_an_embedding_trains_as_nn_embedding_does() -> None:
    """The same peak as the module that PyTorch exports it from."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(4, 2)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.table(ids)

    ids = graphmem.spec("512:int64")
    exported = analysis(_EMBEDDING, ids, mode="training")
    assert exported.peak.allocated_bytes == graphmem.analyze(Model(), ids).peak.allocated_bytes


def test_scattering_has_gradients_for_data_and_updates() -> None:
    text = """g (float[3] x, float[1] u) => (y) <int64[1] i={-1}> {
        y = ScatterElements<axis=0>(x, i, u)
    }"""
    x, u = torch.ones(3, requires_grad=True), torch.ones(1, requires_grad=True)
    (compute(text, x, u) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert x.grad is not None
    assert u.grad is not None
    assert x.grad.tolist() == [1, 2, 0]
    assert u.grad.tolist() == [3]


@pytest.mark.parametrize("reduction", ["mul", "max", "min", "add"])
def test_scatter_nd_combines_slices(reduction: str) -> None:
    """At index -1 twice: 2 and 3 with 5."""
    text = f"""g (float[2,2] x, float[2,2] u) => (y) <int64[2,1] i={{-1,-1}}> {{
        y = ScatterND<reduction="{reduction}">(x, i, u)
    }}"""
    x, u = torch.full((2, 2), 5.0), torch.tensor([[2.0, 2.0], [3.0, 3.0]])
    last = {"mul": 30, "max": 5, "min": 2, "add": 10}[reduction]
    assert compute(text, x, u, opset=18).tolist() == [[5, 5], [last, last]]


def test_of_equal_values_the_first_come_first() -> None:
    """Four 1s among fifty, in their order."""
    text = "g (float[n] x) => (v, i) <int64[1] k={4}> { v, i = TopK(x, k) }"
    x = torch.zeros(50)
    x[[3, 9, 20, 41, 44]] = 1
    assert compute(text, x)[1].tolist() == [3, 9, 20, 41]


def test_unique_strings_are_in_order() -> None:
    text = "g (string[n] x) => (y, f, i, c) { y, f, i, c = Unique(x) }"
    y, first, inverse, counts = compute(text, np.array(["b", "a", "b"], dtype=object))
    assert y.tolist() == ["a", "b"]
    assert (first.tolist(), inverse.tolist(), counts.tolist()) == ([1, 0], [1, 0, 1], [1, 2])


_NONZERO = """g (float[n] x) => (y) {
    z = NonZero(x)
    p = Transpose<perm=[1,0]>(z)
    y = GatherND(x, p)
}"""


def test_an_analysis_takes_all_elements_where_data_choose_some() -> None:
    """NonZero: 1,000 indices of 8 B; a slice between data: all of the axis; k: all."""
    report = analysis(_NONZERO, graphmem.spec("1000"))
    assert (sizes(report)["NonZero"], sizes(report)["GatherND"]) == (8000, 4000)
    assert notes(report) == {"how many elements are not zero": "all 1,000"}


@pytest.mark.parametrize(
    ("node", "what"),
    [
        ("y = Compress<axis=0>(x, c)", "how many elements a condition chooses"),
        ("y, i, j, k = Unique<axis=0>(x)", "how many elements are different"),
        ("y, i = TopK<axis=0>(x, n)", "k, which depends on data"),
        ("y = Slice(x, n, n)", "a slice whose ends depend on data"),
    ],
)
def test_each_choice_by_data_has_a_bound_and_says_so(node: str, what: str) -> None:
    """At most all of x [10, 4], 160 B."""
    text = f"""g (float[10,4] x, float[10] s, float[1] m) => (y) {{
        c = Cast<to=9>(s)
        n = Cast<to=7>(m)
        {node}
    }}"""
    report = analysis(text, *map(graphmem.spec, ("10x4", "10", "1")))
    assert list(notes(report)) == [what]
    assert sizes(report)["(top level)"] == 160


def test_strict_refuses_what_depends_on_data() -> None:
    with pytest.raises(ValueNeededError, match="NonZero"):
        analysis(_NONZERO, graphmem.spec("1000"), strict=True)
