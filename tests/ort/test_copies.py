"""Graphs on two devices."""

from __future__ import annotations

from graphmem.ort.copies import Side, split
from tests.ort.graphs import graph

THERE, HERE = Side(on_device=True), Side(on_device=False)
SHAPE = Side(on_device=True, host_outputs=frozenset({0}))


def nodes(made: object) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    return [(n.op, n.inputs, n.outputs) for n in made.graph.nodes]  # type: ignore[attr-defined]


def test_a_graph_of_one_device_stays_as_it_is() -> None:
    one = graph("a = Exp(x)\ny = Exp(a)", "x", "y")
    made = split(one, [THERE, THERE])
    assert made.graph.nodes == one.nodes
    assert made.device_inputs == ("x",)
    assert not any(value.on_host for value in made.graph.values.values())


def test_what_is_read_on_the_other_side_is_copied_once() -> None:
    one = graph("a = Exp(x)\nb = Acos(a)\nc = Asin(a)\ny = Sum(a, b, c)", "x", "y")
    made = split(one, [THERE, HERE, HERE, THERE])
    a, b, c = (f"{name}_CUDAExecutionProvider" for name in "abc")
    assert sorted(nodes(made)) == sorted(
        [
            ("Exp", ("x",), (a,)),
            ("MemcpyToHost", (a,), ("a",)),
            ("Acos", ("a",), ("b",)),
            ("Asin", ("a",), ("c",)),
            ("MemcpyFromHost", ("b",), (b,)),
            ("MemcpyFromHost", ("c",), (c,)),
            ("Sum", (a, b, c), ("y",)),
        ]
    )
    assert {n for n, v in made.graph.values.items() if v.on_host} == {"a", "b", "c"}
    assert made.copies == {a: "a", b: "b", c: "c"}


def test_what_a_kernel_leaves_on_the_host_and_another_reads_there_needs_no_copy() -> None:
    one = graph("s = Shape(x)\ny = Reshape(x, s)", "x", "y")
    made = split(one, [SHAPE, Side(on_device=True, host_inputs=frozenset({1}))])
    assert made.graph.nodes == one.nodes
    assert {n for n, v in made.graph.values.items() if v.on_host} == {"s"}


def test_an_input_that_both_read_is_copied_by_a_node_and_not_by_the_run() -> None:
    one = graph("a = Exp(x)\nb = Acos(x)", "x", "a, b")
    made = split(one, [THERE, HERE])
    assert ("MemcpyFromHost", ("x",), ("x_CUDAExecutionProvider",)) in nodes(made)
    assert made.device_inputs == ()


def test_origins_lead_back_to_the_nodes() -> None:
    one = graph("a = Exp(x)\nb = Acos(a)\ny = Exp(b)", "x", "y")
    made = split(one, [THERE, HERE, THERE])
    assert made.origins == (0, None, 1, None, 2)
