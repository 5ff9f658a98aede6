"""The layout of a memory pattern."""

from __future__ import annotations

from graphmem.ort import PatternTrace


def traced(*events: tuple[str, int] | str) -> PatternTrace:
    trace = PatternTrace()
    for event in events:
        if isinstance(event, str):
            trace.free(event)
        else:
            trace.allocate(*event)
    return trace


def test_sizes_are_rounded_up_to_256_bytes() -> None:
    pattern = traced(("a", 1), ("b", 257)).pattern()
    assert pattern.sizes == {"a": 256, "b": 512}
    assert pattern.nbytes == 768


def test_a_gap_is_used_again() -> None:
    assert traced(("a", 512), ("b", 256), "a", ("c", 512)).pattern().nbytes == 768


def test_the_smallest_gap_that_is_large_enough_is_taken() -> None:
    trace = traced(("a", 1024), ("b", 256), ("c", 512), ("d", 256), "a", "c", ("e", 512))
    trace.allocate("f", 1024)  # the first gap is still whole
    assert trace.pattern().nbytes == 2048  # 1024 + 256 + 512 + 256


def test_the_end_of_what_was_needed_is_a_gap_too() -> None:
    # a: 0 to 1024, b: to 1280, c: to 1536; the gaps of a (1024) and of c (256) are free then
    trace = traced(("a", 1024), ("b", 256), ("c", 256), "a", "c", ("d", 256))
    trace.allocate("e", 1024)  # the first gap is still whole: d is where c was
    assert trace.pattern().nbytes == 1536


def test_the_lower_of_two_gaps_that_fit_alike_is_taken() -> None:
    trace = traced(("a", 256), ("b", 256), ("c", 256), "a", "c", ("d", 256), ("e", 512))
    assert trace.pattern().nbytes == 1024  # d is where a was, e behind b


def test_what_fits_nowhere_goes_behind_what_is_alive() -> None:
    assert traced(("a", 256), ("b", 256), "b", ("c", 512)).pattern().nbytes == 768
    assert traced(("a", 256), ("b", 256), "a", ("c", 512)).pattern().nbytes == 1024


def test_empty_values_take_no_place() -> None:
    pattern = traced(("a", 0), "a", ("b", 256)).pattern()
    assert pattern.sizes == {"a": 0, "b": 256}
    assert pattern.nbytes == 256
