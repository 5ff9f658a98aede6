"""Which value gets which buffer."""

from __future__ import annotations

from dataclasses import replace

from graphmem.ort import Kind, Placing, make_plan
from tests.ort.graphs import graph


def buffers(text: str, *args: object, **kwargs: object) -> dict[str, str]:
    plan = make_plan(graph(text, *args, **kwargs))  # type: ignore[arg-type]
    return {name: placing.buffer for name, placing in plan.placings.items()}


CHAIN = """
a = Exp(x)
b = Exp(a)
c = Exp(b)
y = Exp(c)
"""


def test_a_freed_buffer_of_the_same_shape_is_used_again() -> None:
    assert buffers(CHAIN, "x", "y") == {"x": "x", "a": "a", "b": "b", "c": "a", "y": "y"}


def test_without_reuse_every_value_has_its_own() -> None:
    plan = make_plan(graph(CHAIN, "x", "y"), reuse=False)
    assert plan.placings["c"] == Placing(Kind.NEW, "c")


def test_equal_sizes_of_other_shapes_are_not_the_same() -> None:
    dims = {"a": (10, 10), "c": (100,)}
    assert buffers(CHAIN, "x", "y", dims)["c"] == "c"


def test_names_of_dimensions_are_compared_not_their_sizes() -> None:
    same, other = {"a": ("N", 4), "c": ("N", 4)}, {"a": ("N", 4), "c": ("M", 4)}
    assert buffers(CHAIN, "x", "y", same)["c"] == "a"
    assert buffers(CHAIN, "x", "y", other)["c"] == "c"


def test_an_unknown_shape_shares_with_none() -> None:
    assert buffers(CHAIN, "x", "y", {"a": None, "c": None})["c"] == "c"


def test_an_element_of_another_size_needs_another_buffer() -> None:
    assert buffers(CHAIN, "x", "y", None, {"c": 8})["c"] == "c"


def test_strings_share_with_none() -> None:
    assert buffers(CHAIN, "x", "y", None, {"a": None, "c": None})["c"] == "c"


def test_a_buffer_of_another_device_is_not_taken() -> None:
    made = graph(CHAIN, "x", "y")
    values = {**made.values, "c": replace(made.values["c"], on_host=True)}
    assert make_plan(replace(made, values=values)).placings["c"] == Placing(Kind.NEW, "c")


def test_scalars_are_not_reused() -> None:
    assert buffers(CHAIN, "x", "y", {"a": (), "c": ()})["c"] == "c"


def test_the_buffer_freed_last_is_taken_first() -> None:
    text = """
    a = Exp(x)
    b = Exp(x)
    c = Add(a, b)
    d = Exp(c)
    e = Exp(d)
    y = Add(d, e)
    """
    # a is freed before b, as inputs stand: d takes b's; then c is free, which e takes.
    found = buffers(text, "x", "y")
    assert (found["d"], found["e"]) == ("b", "c")


def test_a_kernel_works_in_place_at_the_last_use_only() -> None:
    text = """
    a = Exp(x)
    b = Relu(a)
    c = Exp(b)
    y = Exp(c)
    """
    assert buffers(text, "x", "y")["b"] == "a"
    later = text.replace("y = Exp(c)", "y = Add(c, a)")
    assert buffers(later, "x", "y")["b"] == "b"


def test_inputs_and_outputs_are_nobodys_buffer() -> None:
    assert buffers("a = Relu(x)\ny = Relu(a)", "x", "y") == {"x": "x", "a": "a", "y": "y"}


def test_an_alias_is_its_input_also_where_that_is_used_later() -> None:
    text = """
    a = Exp(x)
    b = Reshape(a)
    c = Exp(b)
    y = Add(c, a)
    """
    plan = make_plan(graph(text, "x", "y", {"b": (10, 10)}))
    assert plan.placings["b"] == Placing(Kind.SHARED, "a")
    assert plan.frees == ((), (), (), ("a", "c"))


def test_a_shared_buffer_is_freed_after_its_last_reader() -> None:
    assert make_plan(graph(CHAIN, "x", "y")).frees == ((), (), ("b",), ("a",))


def test_what_nobody_reads_stays_until_the_end() -> None:
    text = """
    a, unused = Split(x)
    y = Exp(a)
    """
    assert make_plan(graph(text, "x", "y")).frees == ((), ("a",))
