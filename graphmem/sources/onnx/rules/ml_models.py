"""ai.onnx.ml: linear models and support vector machines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, combinations
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from graphmem.errors import ModelLoadError
from graphmem.sources.onnx import bounds
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.ml import ML, mapped


def post_transform(scores: Tensor, kind: str) -> Tensor:
    """Scores [N, E] as ``post_transform`` says.

    Source of SOFTMAX_ZERO, which leaves zeros out: onnx/reference/ops/aionnxml/
    _common_classifier.py, compute_softmax_zero.
    """
    if kind == "LOGISTIC":
        return torch.sigmoid(scores)
    if kind == "SOFTMAX":
        return torch.softmax(scores, -1)
    if kind == "PROBIT":
        made: Tensor = torch.special.ndtri(scores)
        return made
    if kind != "SOFTMAX_ZERO":
        return scores
    largest = scores.amax(-1, keepdim=True)
    kept = torch.where(
        scores.abs() > 1e-7, torch.exp(scores - largest), scores * torch.exp(-largest)
    )
    total = kept.sum(-1, keepdim=True)
    return torch.where(total == 0, 0.5, kept / total)


def labelled(places: Tensor, labels: Sequence[Any]) -> Any:
    """The labels [N] at positions: int64, or strings."""
    if labels and isinstance(labels[0], str):
        return mapped(places, range(len(labels)), labels, "", None)
    return torch.tensor(labels, dtype=torch.int64, device=places.device)[places]


def _vector(call: Call, name: str, x: Tensor) -> Tensor:
    return torch.tensor(call.numbers(name), dtype=x.dtype, device=x.device)


def _rows(x: Tensor) -> Tensor:
    """The input as float32 [N, F]."""
    return (x.unsqueeze(0) if x.dim() == 1 else x).float()


@rule("LinearRegressor", domain=ML)
def linear_regressor(call: Call, x: Tensor) -> Tensor:
    """``x @ coefficients.T + intercepts`` [N, targets]."""
    rows = _rows(x)
    weight = _vector(call, "coefficients", rows).reshape(call.integer("targets", 1), -1)
    bias = _vector(call, "intercepts", rows) if call.has("intercepts") else None
    return post_transform(F.linear(rows, weight, bias), call.text("post_transform", "NONE"))


@rule("LinearClassifier", domain=ML)
def linear_classifier(call: Call, x: Tensor) -> tuple[Any, Tensor]:
    """The label [N] of the largest score, and the scores [N, classes].

    One row of coefficients is the second class's of two: its score counts from 0, and the
    first's is ``1 - score``. Source: onnxruntime/core/providers/cpu/ml/linearclassifier.cc.
    """
    rows, transform = _rows(x), call.text("post_transform", "NONE")
    weight = _vector(call, "coefficients", rows).reshape(-1, rows.shape[1])
    bias = _vector(call, "intercepts", rows) if call.has("intercepts") else None
    scores = F.linear(rows, weight, bias)
    labels = call.get("classlabels_strings") or call.integers("classlabels_ints", ())
    if scores.shape[1] == 1:
        second = torch.sigmoid(scores) if transform == "LOGISTIC" else scores
        is_second = (scores[:, 0] > 0).long()
        return labelled(is_second, labels or (0, 1)), torch.cat([1 - second, second], 1)
    best = scores.argmax(1)
    return labelled(best, labels or range(scores.shape[1])), post_transform(scores, transform)


def _kernel(call: Call, x: Tensor, vectors: Tensor) -> Tensor:
    """The kernel of x [N, F] and vectors [S, F], as [N, S]."""
    kind = call.text("kernel_type", "LINEAR")
    gamma, coef0, degree = call.numbers("kernel_params", (0.0, 0.0, 0.0))
    if kind == "RBF":
        squares = (x * x).sum(1, keepdim=True) + (vectors * vectors).sum(1) - 2 * x @ vectors.T
        return torch.exp(-gamma * squares.clamp_min(0))
    products = x @ vectors.T
    if kind == "POLY":
        return (gamma * products + coef0) ** degree
    return torch.tanh(gamma * products + coef0) if kind == "SIGMOID" else products


@rule("SVMRegressor", domain=ML)
def svm_regressor(call: Call, x: Tensor) -> Tensor:
    """The regression [N, 1]; of one class 1 inside of it, else -1."""
    rows, supports = _rows(x), call.integer("n_supports", 0)
    coefficients = _vector(call, "coefficients", rows)
    if supports:
        vectors = _vector(call, "support_vectors", rows).reshape(supports, -1)
        scores = _kernel(call, rows, vectors) @ coefficients
    else:
        scores = _kernel(call, rows, coefficients.unsqueeze(0))[:, 0]
    scores = (scores + call.numbers("rho")[0]).unsqueeze(1)
    if call.integer("one_class", 0):
        return torch.where(scores > 0, 1.0, -1.0)
    return post_transform(scores, call.text("post_transform", "NONE"))


@rule("SVMClassifier", domain=ML)
def svm_classifier(call: Call, x: Tensor) -> tuple[Any, Tensor]:
    """The label [N], and scores of each pair of classes or probabilities of each class."""
    rows = _rows(x)
    labels = call.get("classlabels_strings") or call.integers("classlabels_ints")
    if not call.has("vectors_per_class"):
        return _linear_svm(call, rows, labels)
    scores = _pair_scores(call, rows, len(labels))
    votes = _votes(scores, len(labels))
    if call.get("prob_a"):
        made = _probabilities(call, scores, len(labels))
        return labelled(_voted(call, votes, made), labels), _finished(call, made)
    return labelled(votes.argmax(1), labels), _finished(call, _both(call, scores, labels))


def _voted(call: Call, votes: Tensor, probabilities: Tensor) -> Tensor:
    return votes.argmax(1) if votes.shape[1] > 2 else probabilities.argmax(1)


def _both(call: Call, scores: Tensor, labels: Sequence[Any]) -> Tensor:
    """The score of one pair as one for each of its classes."""
    return torch.cat([-scores, scores], 1) if len(labels) == 2 else scores


def _finished(call: Call, scores: Tensor) -> Tensor:
    return post_transform(scores, call.text("post_transform", "NONE"))


def _linear_svm(call: Call, rows: Tensor, labels: Sequence[Any]) -> tuple[Any, Tensor]:
    weight = _vector(call, "coefficients", rows).reshape(len(labels), -1)
    scores = _kernel(call, rows, weight) + call.numbers("rho")[0]
    return labelled(scores.argmax(1), labels), _finished(call, scores)


def _pair_scores(call: Call, rows: Tensor, classes: int) -> Tensor:
    """The decision of each pair of classes [N, classes * (classes - 1) / 2], as libsvm's."""
    counts = call.integers("vectors_per_class")
    ends = list(accumulate(counts))
    vectors = _vector(call, "support_vectors", rows).reshape(ends[-1], -1)
    coefficients = _vector(call, "coefficients", rows).reshape(-1, ends[-1])
    kernel = _kernel(call, rows, vectors)
    parts = [slice(end - n, end) for n, end in zip(counts, ends, strict=True)]
    pairs = zip(combinations(range(classes), 2), call.numbers("rho"), strict=False)
    scores = [
        kernel[:, parts[i]] @ coefficients[j - 1, parts[i]]
        + kernel[:, parts[j]] @ coefficients[i, parts[j]]
        + rho
        for (i, j), rho in pairs
    ]
    return torch.stack(scores, 1)


def _votes(scores: Tensor, classes: int) -> Tensor:
    """How many pairs each class wins [N, classes]."""
    made = scores.new_zeros(scores.shape[0], classes)
    for column, (i, j) in enumerate(combinations(range(classes), 2)):
        wins = scores[:, column] > 0
        made[:, i] += wins
        made[:, j] += ~wins
    return made


_LEAST = 1e-7
"""The least probability of a pair. Source: libsvm, svm_predict_probability (min_prob)."""


def _probabilities(call: Call, scores: Tensor, classes: int) -> Tensor:
    """Probabilities of each class [N, classes] from those of the pairs."""
    a, b = _vector(call, "prob_a", scores), _vector(call, "prob_b", scores)
    if a.numel() != scores.shape[1]:
        raise ModelLoadError(f"node {call.node.label}: prob_a is not of one value a pair")
    pairs = (1 - torch.sigmoid(scores * a + b)).clamp(_LEAST, 1 - _LEAST)
    table = scores.new_zeros(scores.shape[0], classes, classes)
    for column, (i, j) in enumerate(combinations(range(classes), 2)):
        table[:, i, j] = pairs[:, column]
        table[:, j, i] = 1 - pairs[:, column]
    return _coupled(table)


def _coupled(table: Tensor) -> Tensor:
    """Probabilities of classes that agree best with those of pairs [N, k, k].

    Source: libsvm, multiclass_probability: Gauss-Seidel steps until no class is off by 0.005/k,
    at most max(100, k) of them. Where values are not known, one: all need the same memory.
    """
    classes = table.shape[1]
    system = -table.transpose(1, 2) * table
    system = system + torch.diag_embed((table * table).sum(1))
    made = table.new_full((table.shape[0], classes), 1 / classes)
    for _ in range(max(100, classes)):
        products = torch.einsum("nij,nj->ni", system, made)
        value = (made * products).sum(1, keepdim=True)
        open_ = ((products - value).abs() >= 0.005 / classes).any(1, keepdim=True)
        known = bounds.is_known(open_)
        if known and not bool(open_.any()):
            break
        made = torch.where(open_, _step(system, made, products, value[:, 0]), made)
        if not known:
            break
    return made


def _step(system: Tensor, made: Tensor, products: Tensor, value: Tensor) -> Tensor:
    for t in range(made.shape[1]):
        change = (value - products[:, t]) / system[:, t, t]
        scale = 1 + change
        value = (value + change * (change * system[:, t, t] + 2 * products[:, t])) / scale**2
        products = (products + change[:, None] * system[:, t]) / scale[:, None]
        added = F.one_hot(torch.tensor(t, device=made.device), made.shape[1]) * change[:, None]
        made = (made + added) / scale[:, None]
    return made
