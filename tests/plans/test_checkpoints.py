"""The cheapest set of blocks: beside every set, by hand, and in a trace."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem.plans import checkpoints
from graphmem.plans.blocks import blocks_of, compact, patterns
from graphmem.plans.checkpoints import Block, best_set
from graphmem.schedule import Category, Module, Phase, Schedule
from tests.schedules import build, op, tensor


def _blocks(*gains_and_costs: tuple[int, int]) -> list[Block]:
    return [Block(str(i), i, 100 - i, g, c) for i, (g, c) in enumerate(gains_and_costs)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=6),
    st.dictionaries(st.integers(1, 6), st.integers(0, 25), max_size=3),
)
def test_it_is_the_cheapest_of_all_sets(
    numbers: list[tuple[int, int]], needs: dict[int, int]
) -> None:
    blocks = _blocks(*numbers)
    needs = {count: need for count, need in needs.items() if count <= len(blocks)}

    def is_enough(chosen: tuple[Block, ...]) -> bool:
        return all(
            sum(b.gain for b in chosen if int(b.path) < count) >= need
            for count, need in needs.items()
        )

    sets = (c for n in range(len(blocks) + 1) for c in combinations(blocks, n))
    costs = [sum(b.cost for b in chosen) for chosen in sets if is_enough(chosen)]
    found = checkpoints._cheapest(blocks, needs)
    if found is None:
        assert costs == []
    else:
        chosen = tuple(block for block in blocks if block.path in found)
        assert is_enough(chosen)
        assert sum(block.cost for block in chosen) == min(costs)


def _stack() -> Schedule:
    """Three blocks: each makes 10 for its backward and hands 1 to the next; the loss takes 5."""
    saved = Category.SAVED_FOR_BACKWARD
    forward: list[Any] = [
        op({"s0": tensor(10, saved), "o0": tensor(1, saved)}, module="b.0"),
        op({"s1": tensor(10, saved), "o1": tensor(1, saved)}, reads="o0", module="b.1"),
        op({"s2": tensor(10, saved), "o2": tensor(1, saved)}, reads="o1", module="b.2"),
        op({"l": 5}, reads="o2", module="(top level)"),
    ]
    back = Phase.BACKWARD
    backward = [
        op(reads="l s2 o2", frees="l s2 o2", module="b.2", phase=back),
        op(reads="s1 o1", frees="s1 o1", module="b.1", phase=back),
        op(reads="s0 o0", frees="s0 o0", module="b.0", phase=back),
    ]
    return build(*forward, *backward)


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (38, ()),  # 3 * 10 + 3 * 1 + 5 = 38: all fits
        (37, ("b.0",)),  # one has to go; also while b.2 is made again (28)
        (28, ("b.0",)),  # 38 - 10
        (27, None),  # two: 38 - 20 = 18, but then b.2's own backward holds 38 - 20
    ],
)
def test_a_stack_by_hand(allowed: int, expected: tuple[str, ...] | None) -> None:
    paths = ("b.0", "b.1", "b.2")
    found = best_set(_stack(), paths, allowed)
    if expected is None:
        assert found is not None
        assert len(found) == 2
    else:
        assert found == expected


def test_what_no_checkpoint_can_lower_has_no_set() -> None:
    assert best_set(_stack(), ("b.0", "b.1", "b.2"), 5) is None


def _module(path: str, kind: str) -> Module:
    return Module(path, kind, 1, 0, 0, 0)


def test_blocks_are_the_outermost_that_are_repeated() -> None:
    modules = [
        _module("stem.0", "Conv2d"),
        _module("stem.1", "ReLU"),
        *(_module(f"layers.{i}", "Layer") for i in range(12)),
        *(_module(f"layers.{i}.heads.{j}", "Head") for i in range(12) for j in range(2)),
        _module("head", "Linear"),
    ]
    blocks = blocks_of(modules)
    assert blocks == tuple(f"layers.{i}" for i in range(12))
    assert patterns(blocks) == "layers.*"
    assert compact(blocks) == "layers.[0-9],layers.1[0-1]"
    assert compact(["a.0", "a.2", "a.3", "b.7"]) == "a.0,a.[2-3],b.7"
