"""Runs through the arena, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphmem.allocator.bfc import ArenaOutOfMemoryError, ArenaSettings, ExtendStrategy
from graphmem.ort import Call, Execution, RunSettings, Setup, simulate
from graphmem.ort.bound import Best, Interval, best_arena
from graphmem.ort.graph import pattern_key
from graphmem.ort.order import Ordered, execution_order
from tests.ort.graphs import execution, graph

DIAMOND = """
a = Exp(x)
c = Tanh(a)
b = Relu(a)
d = Add(b, c)
y = Exp(d)
"""
MIB = 1 << 20


def test_a_diamond_shaped_graph() -> None:
    diamond = graph(DIAMOND, "x", "y")
    first, later = simulate([execution(diamond, 400)] * 2)
    # a; a, c; a (as b), c; a, c, d; d, y
    assert [m.requested for m in first.moments] == [400, 800, 800, 1200, 800]
    assert [m.in_use for m in first.moments] == [512, 1024, 1024, 1536, 1024]
    # three of 512 bytes in one block, and the output beside it
    assert [m.requested for m in later.moments] == [1536] * 4 + [1936]
    assert [m.in_use for m in later.moments] == [1536] * 4 + [2048]
    assert first.held == later.held == MIB


def test_without_a_memory_pattern_all_runs_are_the_same() -> None:
    settings = RunSettings(mem_pattern=False)
    first, later = simulate([execution(graph(DIAMOND, "x", "y"))] * 2, settings)
    assert [m.in_use for m in first.moments] == [m.in_use for m in later.moments]


def test_other_input_shapes_have_their_own_pattern() -> None:
    made = graph(DIAMOND, "x", "y")
    small, large = execution(made, 400), execution(made, 4000)
    runs = simulate([small, Execution(made, large.nbytes, key=7), small])
    assert [run.requested for run in runs] == [1200, 12000, 1936]


def test_a_value_of_another_size_than_in_the_pattern_has_a_chunk_of_its_own() -> None:
    made = graph(DIAMOND, "x", "y")
    larger = {**execution(made).nbytes, "d": 4000}
    _, later = simulate([execution(made), Execution(made, larger)])
    assert later.moments[3].requested == 1536 + 4000


def test_shapes_of_one_key_share_a_pattern() -> None:
    assert pattern_key([(2, 8)]) == pattern_key([(8,), (2,)]) == 10
    assert pattern_key([]) == 0


def test_what_stands_before_the_first_run() -> None:
    made = execution(graph("y = Exp(x)", "x", "y"))
    setup = [Setup(1000), Setup(100, in_region=True), Setup(5000, is_freed=True)]
    (run,) = simulate([made], setup=setup)
    assert run.moments[0].requested == 1000 + 100 + 400
    assert run.moments[0].in_use == 1000 + 256 + 512
    assert run.moments[0].peak == 1000 + 256 + 5000
    assert run.held == 1000 + MIB


def test_scratch_is_in_the_peak_and_in_no_moment() -> None:
    made = execution(graph("a = Exp(x)\ny = Exp(a)", "x", "y"))
    with_scratch = Execution(made.graph, made.nbytes, calls={0: Call(scratch=(1000, 24))})
    (run,) = simulate([with_scratch])
    assert run.in_use == 1024
    assert run.moments[0].peak == 512 + 1024 + 256


def test_exact_regions_hold_what_was_asked_for() -> None:
    arena = ArenaSettings(strategy=ExtendStrategy.SAME_AS_REQUESTED)
    first, _ = simulate([execution(graph(DIAMOND, "x", "y"))] * 2, RunSettings(arena=arena))
    assert first.held == 3 * 512  # y lies where a was


def test_a_limit_ends_a_run() -> None:
    settings = RunSettings(arena=ArenaSettings(limit=1024))
    with pytest.raises(ArenaOutOfMemoryError):
        simulate([execution(graph(DIAMOND, "x", "y"))], settings)


def test_the_output_of_a_body_is_its_nodes_own() -> None:
    body = replace(graph("t = Exp(o)\nr = Exp(t)", "", "r"), outer=("o",))
    outer = graph("o = Exp(x)\nr = If(c)\ny = Exp(r)", "x, c", "y")
    first, choice, last = outer.nodes
    outer = replace(outer, nodes=(first, replace(choice, implicit=("o",)), last))
    call = Call(inner=(execution(body),), results=(0,))
    run = simulate([replace(execution(outer), calls={1: call})])[0]
    # o; o, t; o, t, r; then t is gone with the body, and o after it
    assert [m.requested for m in run.moments] == [400, 800, 1200, 800, 800]
    assert [m.depth for m in run.moments] == [0, 1, 1, 0, 0]


def test_what_a_loop_carries_is_there_twice_and_what_it_stacks_until_the_end() -> None:
    body = graph("k, v, s = Body(i)", "i", "k, v, s")
    outer = graph("w, z = Loop(x)", "x", "w, z")
    sizes = {"k": 1, "v": 400, "s": 100}
    calls = {0: Call(inner=(execution(body, sizes),) * 3, kept=frozenset({2}))}
    made = replace(execution(outer, {"w": 400, "z": 300}), calls=calls)
    run = simulate([made], RunSettings(mem_pattern=False))[0]
    # each time 501 more, 401 of the time before are given back; w and z are copies at the end
    assert [m.requested for m in run.moments] == [501, 1002, 1102, 700]


def test_the_block_for_all_buffers() -> None:
    buffers = [Interval(400, 0, 2), Interval(400, 1, 3), Interval(400, 3, 4), Interval(100, 4, 4)]
    assert best_arena(buffers) == Best(packed=800, live=800)
    assert best_arena([]) == Best(0, 0)


def test_the_node_with_the_highest_index_goes_first() -> None:
    nodes = [
        Ordered(0, ("x",), ("a",)),
        Ordered(1, ("a",), ("b",)),
        Ordered(2, ("a",), ("c",)),
        Ordered(3, ("b", "c"), ("d",)),
    ]
    assert execution_order(nodes) == [0, 2, 1, 3]


def test_leaves_run_from_the_last_to_the_first() -> None:
    nodes = [Ordered(0, ("x",), ("a",)), Ordered(1, ("x",), ("b",))]
    assert execution_order(nodes) == [1, 0]


def test_inputs_that_are_copied_to_the_device_come_before_the_pattern_and_stay_for_the_run() -> (
    None
):
    one = replace(execution(graph(DIAMOND, "x", "y"), 400), copied={"x": 300})
    first, later = simulate([one] * 2)
    # the diamond's 400, 800, 800, 1200, 800 and the copy of x
    assert [m.requested for m in first.moments] == [700, 1100, 1100, 1500, 1100]
    # later a block of 3 * 512 B, then y
    assert [m.requested for m in later.moments] == [1836, 1836, 1836, 1836, 2236]
    (copy,) = (block for block in later.blocks if block.is_input)
    assert (copy.name, copy.nbytes, copy.born, copy.freed, copy.used) == ("x", 300, 0, None, 0)


def test_out_of_memory_says_in_which_run_and_at_which_kernel() -> None:
    arena = ArenaSettings(strategy=ExtendStrategy.SAME_AS_REQUESTED, limit=1024)
    with pytest.raises(ArenaOutOfMemoryError) as caught:  # a, c, then d needs a third 512 B
        simulate([execution(graph(DIAMOND, "x", "y"), 400)], RunSettings(arena=arena))
    assert (caught.value.run, caught.value.moment, caught.value.nbytes) == (0, 3, 512)
