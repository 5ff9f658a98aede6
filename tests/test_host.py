"""Tests of graphmem.host: what offloaded tensors take, and pinned blocks."""

from __future__ import annotations

from typing import Any

from graphmem.host import host_bytes
from graphmem.schedule import Category, Schedule
from tests.schedules import build, op, tensor


def there(nbytes: int, **traits: Any) -> Any:
    return tensor(nbytes, Category.SAVED_FOR_BACKWARD, host=True, **traits)


def lying() -> Schedule:
    return build(
        op({"a": there(100, op="aten.empty.memory_format"), "gpu": 1000}),
        op({"b": there(60, op="aten.empty.memory_format")}, frees="a"),
        op({"c": there(120, op="aten.empty.memory_format"), "s": there(8, op="aten.zeros_like")}),
        op(frees="b c"),
    )


def test_the_most_that_is_there_at_a_time_counts() -> None:
    assert host_bytes(lying(), pinned=False).peak_bytes == 60 + 120 + 8
    assert host_bytes(lying(), pinned=False).pinned_bytes is None


def test_pinned_blocks_are_powers_of_two_and_serve_again_for_their_own_size() -> None:
    # a takes 128 bytes, which c takes again; b takes 64; s is not pinned
    assert host_bytes(lying(), pinned=True).pinned_bytes == 128 + 64


def test_what_is_no_part_of_the_offloaded_is_left_out() -> None:
    states = build(op({"rng": tensor(5056, host=True), "a": there(16, op="aten._to_copy")}))
    assert host_bytes(states, pinned=False).peak_bytes == 16
