"""Branches and loops: the node tests, and what an analysis assumes where data decide."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import graphmem
from graphmem.errors import ModelLoadError, UsageError, ValueNeededError
from tests.sources.onnx import backend
from tests.sources.onnx.text_graphs import analysis, compute, node_tests, notes, sizes

_OPERATORS = ("If", "Loop", "Scan", "SequenceMap", "SequenceEmpty", "SequenceLength")


@pytest.mark.parametrize("name", node_tests(*_OPERATORS))
def test_the_node_tests_pass(name: str) -> None:
    assert backend.run_case(backend.cases()[name]) is None


_IF = """g (bool c, float[n] x) => (y) {
    y = If(c) <
        then_branch = t () => (float[m] a) { a = Concat<axis=0>(x, x) },
        else_branch = e () => (float[m] b) { s = Relu(x) b = Neg(s) }
    >
}"""


@pytest.mark.parametrize(("condition", "wanted"), [(True, [1, 2, 1, 2]), (False, [-1, -2])])
def test_a_branch_reads_values_around_it(condition: bool, wanted: list[float]) -> None:
    assert compute(_IF, torch.tensor(condition), torch.tensor([1.0, 2.0])).tolist() == wanted


def test_an_analysis_takes_the_branch_of_more_nodes() -> None:
    """The second, of two nodes; a condition with a value decides."""
    unknown = analysis(_IF, graphmem.spec("1:bool"), graphmem.spec("100"))
    assert notes(unknown) == {"which branch is taken": "the one of more nodes"}
    assert sizes(unknown)["If"] == 400
    known = analysis(_IF, torch.tensor(True), graphmem.spec("100"))
    assert notes(known) == {}
    assert sizes(known)["If"] == 800


_FOR = """g (int64 n, float[k] x) => (last, all) {
    last, all = Loop(n, , x) <
        body = b (int64 i, bool go, float[k] v) => (bool still, float[k] w, float[k] out) {
            still = Identity(go)
            f = Cast<to=1>(i)
            w = Add(v, f)
            out = Identity(w)
        }
    >
}"""


def test_a_loop_carries_values_and_stacks_others() -> None:
    """From 1: plus 0, 1 and 2."""
    last, every = compute(_FOR, torch.tensor(3), torch.tensor([1.0]))
    assert last.tolist() == [4]
    assert every.tolist() == [[1], [2], [4]]


def test_a_loop_that_never_runs_gives_an_empty_tensor_of_its_bodys_type() -> None:
    last, every = compute(_FOR, torch.tensor(0), torch.tensor([1.0]))
    assert last.tolist() == [1]
    assert (every.shape[0], every.dtype) == (0, torch.float32)


def test_a_loop_has_gradients() -> None:
    x = torch.ones(1, requires_grad=True)
    last, every = compute(_FOR, torch.tensor(3), x)
    (last.sum() + every.sum()).backward()
    assert x.grad is not None
    assert x.grad.item() == 4  # once as the last value, three times as an output


@pytest.mark.parametrize(
    ("count", "trips", "runs", "assumed"),
    [
        (torch.tensor(5), None, 5, None),
        (torch.tensor(5), 7, 5, None),
        (graphmem.spec("1:int64"), None, 1, "it runs once"),
        (graphmem.spec("1:int64"), 7, 7, "it runs 7 times"),
    ],
)
def test_a_trip_count_is_known_given_or_one(
    count: object, trips: int | None, runs: int, assumed: str | None
) -> None:
    """Each iteration stacks 100 floats."""
    report = analysis(_FOR, count, graphmem.spec("100"), trip_count=trips)
    relevant = {} if assumed is None else {"how often the loop runs": assumed}
    assert notes(report) == relevant
    assert sizes(report)["Loop"] == 400 * runs + 400


_WHILE = """g (float[k] x) => (last, all) <int64 most={MOST}, bool yes={1}, float[1] end={100}> {
    last, all = Loop(most, yes, x) <
        body = b (int64 i, bool go, float[k] v) => (bool still, float[k] w, float[k] out) {
            w = Add(v, v)
            m = ReduceMax<keepdims=0>(w)
            e = Squeeze(end)
            still = Less(m, e)
            out = Identity(w)
        }
    >
}"""
_NO_LIMIT = str((1 << 63) - 1)


def test_a_while_loop_ends_with_its_condition() -> None:
    """3, 6, 12, ..., 96, 192: six doublings."""
    last, every = compute(_WHILE.replace("MOST", _NO_LIMIT), torch.tensor([3.0]))
    assert last.tolist() == [192]
    assert len(every) == 6


@pytest.mark.parametrize(
    ("most", "trips", "runs"),
    [(_NO_LIMIT, None, 1), (_NO_LIMIT, 4, 4), ("6", None, 6), ("6", 4, 4), ("6", 9, 6)],
)
def test_where_the_end_is_not_known_a_loop_runs_to_its_limit(
    most: str, trips: int | None, runs: int
) -> None:
    """The given count, at most the loop's own; without either one."""
    report = analysis(_WHILE.replace("MOST", most), graphmem.spec("100"), trip_count=trips)
    times = "once" if runs == 1 else f"{runs} times"
    assert notes(report) == {"when the loop ends": f"it runs {times}"}
    assert sizes(report)["Loop"] == 400 * runs + 400


def test_strict_refuses_a_loop_without_a_known_end() -> None:
    with pytest.raises(ValueNeededError, match="Loop"):
        analysis(_WHILE.replace("MOST", "6"), graphmem.spec("100"), strict=True)


def test_a_loop_without_an_end_is_an_error_that_names_it() -> None:
    text = """g (float x) => (y) {
        y = Loop(, , x) <
            body = b (int64 i, bool go, float v) => (bool still, float w) {
                still = Identity(go)
                w = Neg(v)
            }
        >
    }"""
    with pytest.raises(ModelLoadError, match=r"Loop.*it has no end"):
        compute(text, torch.tensor(1.0))


def test_a_trip_count_is_a_number_of_at_least_one() -> None:
    with pytest.raises(UsageError, match="trip_count"):
        analysis(_FOR, graphmem.spec("1:int64"), graphmem.spec("100"), trip_count=0)


_SCAN = """g (float[h] s, float[t,h] x) => (last, all) {
    last, all = Scan<num_scan_inputs=1, DIRECTIONS
        body = b (float[h] v, float[h] e) => (float[h] w, float[h] out) {
            w = Add(v, e)
            out = Identity(w)
        }
    >(s, x)
}"""


@pytest.mark.parametrize(
    ("directions", "wanted"),
    [
        ("", [[1], [3], [6]]),
        ("scan_input_directions=[1],", [[3], [5], [6]]),
        ("scan_output_directions=[1],", [[6], [3], [1]]),
    ],
)
def test_a_scan_goes_both_ways(directions: str, wanted: list[list[float]]) -> None:
    x = torch.tensor([[1.0], [2.0], [3.0]])
    last, every = compute(_SCAN.replace("DIRECTIONS", directions), torch.zeros(1), x)
    assert last.tolist() == [6]
    assert every.tolist() == wanted


def test_a_scan_of_nothing_keeps_its_state() -> None:
    last, every = compute(_SCAN.replace("DIRECTIONS", ""), torch.ones(1), torch.zeros(0, 1))
    assert last.tolist() == [1]
    assert every.shape[0] == 0


def _scan_batches(lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    text = """g (int64[b] n, float[b,h] s, float[b,t,h] x) => (last, all) {
        last, all = Scan<num_scan_inputs=1,
            body = b (float[h] v, float[h] e) => (float[h] w, float[h] out) {
                w = Add(v, e)
                out = Identity(w)
            }
        >(LENGTHS, s, x)
    }""".replace("LENGTHS", "" if lengths is None else "n")
    x = torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])
    given = torch.tensor([2, 2]) if lengths is None else lengths
    made: tuple[Tensor, Tensor] = compute(text, given, torch.zeros(2, 1), x, opset=8)
    return made


def test_a_scan_of_opset_8_runs_for_each_of_a_batch() -> None:
    last, every = _scan_batches(None)
    assert last.tolist() == [[3], [7]]
    assert every.tolist() == [[[1], [3]], [[3], [7]]]


def test_a_shorter_sequence_of_opset_8_ends_with_zeros() -> None:
    last, every = _scan_batches(torch.tensor([1, 2]))
    assert last.tolist() == [[1], [7]]
    assert every.tolist() == [[[1], [0]], [[3], [7]]]
