"""Operators on strings, which are NumPy arrays of objects."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from graphmem.errors import ModelLoadError, ValueNeededError
from graphmem.sources.onnx.model import Array
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.texts import as_array


@rule("StringConcat", since=20)
def string_concat(call: Call, x: Array, y: Array) -> Array:
    """One string after the other; shapes broadcast."""
    return as_array(as_array(x) + as_array(y))


@rule("StringNormalizer", since=10)
def string_normalizer(call: Call, x: Array) -> Array:
    """Strings [C] or [1, C] without stop words, in upper or lower case; "" if none remain."""
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(call.text("case_change_action", "NONE"))
    exactly = bool(call.integer("is_case_sensitive", 0))
    stop = {_folded(word, exactly) for word in call.get("stopwords", ())}
    kept = [text for text in x.reshape(-1).tolist() if _folded(text, exactly) not in stop]
    made = [change(text) if change else text for text in kept] or [""]
    return as_array(made, (1, len(made)) if x.ndim == 2 else (len(made),))


def _folded(text: str, exactly: bool) -> str:
    return text if exactly else text.lower()


@rule("StringSplit", since=20)
def string_split(call: Call, x: Array) -> tuple[Array, Tensor]:
    """Substrings [..., most], filled up with "", and how many there are of each string."""
    delimiter = call.get("delimiter") or None
    most = call.integer("maxsplit", -1)
    parts = [_split(text, delimiter, most) for text in x.reshape(-1).tolist()]
    width = max(map(len, parts), default=0)
    rows = [part + [""] * (width - len(part)) for part in parts]
    counts = torch.tensor(list(map(len, parts)), dtype=torch.int64).reshape(x.shape)
    return as_array(rows, (*x.shape, width)), counts


def _split(text: str, delimiter: str | None, most: int) -> list[str]:
    return text.split(delimiter, most) if text else []


@rule("RegexFullMatch", since=20)
def regex_full_match(call: Call, x: Array) -> Tensor:
    """Whether the pattern matches all of a string, bool.

    Raises:
        ModelLoadError: Python's re does not know the pattern (ONNX's are RE2's).
    """
    try:
        pattern = re.compile(call.text("pattern"))
    except re.error as error:
        raise ModelLoadError(f"node {call.node.name} (RegexFullMatch): {error}") from error
    found = [pattern.fullmatch(text) is not None for text in x.reshape(-1).tolist()]
    return torch.tensor(found, dtype=torch.bool).reshape(x.shape)


@rule("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(call: Call, x: Any) -> Tensor:
    """Counts or weights [.., max(ngram_indexes) + 1] float32 of n-grams in sequences [.., C].

    Its size is known also where the sequence is not.
    """
    width = max(call.integers("ngram_indexes")) + 1
    try:
        rows = x.tolist() if x.ndim == 2 else [x.tolist()]
    except ValueNeededError:
        return torch.empty(*x.shape[:-1], width)
    made = torch.tensor([_vector(call, row, width) for row in rows], dtype=torch.float32)
    return made.reshape(*x.shape[:-1], width)


def _vector(call: Call, row: Sequence[Any], width: int) -> list[float]:
    mode, made = call.text("mode"), [0.0] * width
    grams = _pool(call)
    weights = call.numbers("weights", (1.0,) * len(call.integers("ngram_indexes")))
    counts = Counter(grams[gram] for gram in _grams(call, row) if gram in grams)
    for entry, count in counts.items():
        value = {"TF": float(count), "IDF": weights[entry], "TFIDF": count * weights[entry]}[mode]
        made[call.integers("ngram_indexes")[entry]] = value
    return made


def _pool(call: Call) -> dict[tuple[Any, ...], int]:
    """The n-grams of the attributes, each with its number."""
    flat = call.get("pool_strings") or call.integers("pool_int64s")
    starts = [*call.integers("ngram_counts"), len(flat)]
    grams = []
    for length, (start, end) in enumerate(pairwise(starts), start=1):
        grams += [tuple(flat[i : i + length]) for i in range(start, end, length)]
    return {gram: number for number, gram in enumerate(grams)}


def _grams(call: Call, row: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """All n-grams of a sequence, with every number of items skipped between two of one."""
    for length in range(call.integer("min_gram_length"), call.integer("max_gram_length") + 1):
        skips = call.integer("max_skip_count") if length > 1 else 0
        for stride in range(1, skips + 2):
            reach = (length - 1) * stride + 1
            for start in range(len(row) - reach + 1):
                yield tuple(row[start : start + reach : stride])
