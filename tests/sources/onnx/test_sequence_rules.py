"""Sequences, optionals and strings: the node tests, and what they leave out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import graphmem
from graphmem.errors import ModelLoadError
from tests.sources.onnx import backend
from tests.sources.onnx.text_graphs import analysis, compute, node_tests, notes, sizes

_OPERATORS = (
    *("SequenceConstruct", "SequenceInsert", "SequenceAt", "SequenceErase", "SplitToSequence"),
    *("ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement"),
    *("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch", "TfIdfVectorizer"),
    *("SequenceEmpty", "SequenceLength", "Identity"),
)


@pytest.mark.parametrize("name", node_tests(*_OPERATORS))
def test_the_node_tests_pass(name: str) -> None:
    assert backend.run_case(backend.cases()[name]) is None


_HEAD = "g (float[2] a, float[2] b, int64 p) => (y) "


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ("t = SequenceInsert(s, c) y = ConcatFromSequence<axis=0>(t)", [1, 2, 3, 4, 4, 6]),
        ("t = SequenceInsert(s, c, p) y = ConcatFromSequence<axis=0>(t)", [1, 2, 4, 6, 3, 4]),
        ("t = SequenceErase(s) y = ConcatFromSequence<axis=0>(t)", [1, 2]),
        ("t = SequenceErase(s, p) y = ConcatFromSequence<axis=0>(t)", [1, 2]),
        ("y = SequenceAt(s, p)", [3, 4]),
        ("y = ConcatFromSequence<axis=1, new_axis=1>(s)", [[1, 3], [2, 4]]),
        ("y = SequenceLength(s)", 2),
    ],
)
def test_a_sequence_is_a_list(nodes: str, wanted: object) -> None:
    """Of a and b; c is their sum, the position -1."""
    text = f"{_HEAD} {{ s = SequenceConstruct(a, b) c = Add(a, b) {nodes} }}"
    given = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]), torch.tensor(-1)
    assert compute(text, *given).tolist() == wanted


def test_an_unknown_position_takes_what_needs_most() -> None:
    """The larger element of 40 and 80 B, and without the smaller one."""
    text = """g (float[10] a, float[20] b, int64 p) => (y, z) {
        s = SequenceConstruct(a, b)
        y = SequenceAt(s, p)
        t = SequenceErase(s, p)
        z = ConcatFromSequence<axis=0>(t)
    }"""
    report = analysis(text, *map(graphmem.spec, ("10", "20", "1:int64")))
    assert list(notes(report)) == ["a position in a sequence"]
    assert sizes(report)["SequenceAt"] == 80
    assert sizes(report)["ConcatFromSequence"] == 80


@pytest.mark.parametrize(
    ("split", "wanted"),
    [(torch.tensor(2), [2, 2, 1]), (torch.tensor([4, 1]), [4, 1])],
)
def test_a_split_is_of_one_size_or_of_several(split: torch.Tensor, wanted: list[int]) -> None:
    kind = "int64" if split.dim() == 0 else "int64[n]"
    text = f"g (float[5] x, {kind} s) => (y) {{ y = SplitToSequence(x, s) }}"
    assert [len(part) for part in compute(text, torch.arange(5.0), split)] == wanted


def test_strings_split_and_join_in_sequences() -> None:
    text = """g (string[3] x) => (y) {
        s = SplitToSequence(x)
        t = SequenceErase(s)
        y = ConcatFromSequence<axis=0>(t)
    }"""
    assert compute(text, np.array(["a", "b", "c"], dtype=object)).tolist() == ["a", "b"]


def test_an_empty_optional_has_no_element() -> None:
    with pytest.raises(ModelLoadError, match=r"OptionalGetElement.*empty"):
        compute("g (optional(float[1]) x) => (y) { y = OptionalGetElement(x) }", None, opset=18)


def test_counts_of_n_grams_have_a_size_also_where_the_words_are_not_known() -> None:
    """Three coordinates for each of 8 rows, as 12 B each."""
    text = """g (int64[b,n] x) => (y) {
        y = TfIdfVectorizer<mode="TF", min_gram_length=1, max_gram_length=2, max_skip_count=0,
            ngram_counts=[0,1], ngram_indexes=[2,0], pool_int64s=[5,5,6]>(x)
    }"""
    rows = compute(text, torch.tensor([[5, 6, 5], [7, 7, 7]]))
    assert rows.tolist() == [[1, 0, 2], [0, 0, 0]]  # 5 6 once, 5 twice
    report = analysis(text, graphmem.spec("8x100:int64"))
    assert sizes(report)["TfIdfVectorizer"] == 8 * 3 * 4


def test_a_pattern_that_pythons_re_does_not_know_is_an_error() -> None:
    text = r"""g (string[1] x) => (y) { y = RegexFullMatch<pattern="(">(x) }"""
    with pytest.raises(ModelLoadError, match="RegexFullMatch"):
        compute(text, np.array(["a"], dtype=object), opset=20)
