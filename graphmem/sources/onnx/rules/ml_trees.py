"""ai.onnx.ml: ensembles of decision trees, all walked at once, one level a step."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from graphmem.errors import ModelLoadError
from graphmem.sources.onnx.module import as_tensor
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.rules.ml import ML
from graphmem.sources.onnx.rules.ml_models import labelled, post_transform

_COMPARE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "BRANCH_LEQ": torch.le,
    "BRANCH_LT": torch.lt,
    "BRANCH_GTE": torch.ge,
    "BRANCH_GT": torch.gt,
    "BRANCH_EQ": torch.eq,
    "BRANCH_NEQ": torch.ne,
}
_MODES = (*_COMPARE, "BRANCH_MEMBER")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass(slots=True)
class Split:
    """A node that compares a feature; ``yes`` and ``no`` are nodes, leaves count from -1 down."""

    mode: str
    feature: int
    value: float
    yes: int
    no: int
    nan_is_yes: bool


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees by their first node (or leaf), and of each leaf its weights by target."""

    splits: list[Split]
    roots: list[int]
    leaves: list[dict[int, float]]

    def depth(self) -> int:
        """The most comparisons from a root to a leaf.

        Raises:
            ModelLoadError: a tree goes round in a circle.
        """
        level, depth = {root for root in self.roots if root >= 0}, 0
        while level:
            depth += 1
            if depth > len(self.splits):
                raise ModelLoadError("an ensemble of trees has a node below itself")
            below = (n for i in level for n in (self.splits[i].yes, self.splits[i].no))
            level = {n for n in below if n >= 0}
        return depth


def _leaf_rows(forest: Forest, x: Tensor) -> Tensor:
    """The leaf [N, trees] int64 that each row of x [N, F] comes to in each tree."""
    splits = forest.splits

    def column(values: Iterable[Any], dtype: torch.dtype) -> Tensor:
        return torch.tensor(list(values), dtype=dtype, device=x.device)

    # Leaves stay where they are: they are nodes after the others, with themselves below.
    count, leaves = len(splits), range(len(forest.leaves))
    ids = {-1 - leaf: count + leaf for leaf in leaves}
    selves = [count + leaf for leaf in leaves]
    feature = column([*(s.feature for s in splits), *(0 for _ in leaves)], torch.int64)
    value = column([*(s.value for s in splits), *(0.0 for _ in leaves)], x.dtype)
    yes = column([*(ids.get(s.yes, s.yes) for s in splits), *selves], torch.int64)
    no = column([*(ids.get(s.no, s.no) for s in splits), *selves], torch.int64)
    modes = sorted({s.mode for s in splits})
    mode = column([*(modes.index(s.mode) for s in splits), *(0 for _ in leaves)], torch.int64)
    nan = column([*(s.nan_is_yes for s in splits), *(False for _ in leaves)], torch.bool)
    at = column([ids.get(root, root) for root in forest.roots], torch.int64)
    at = at.expand(x.shape[0], -1)
    for _ in range(forest.depth()):
        given, bound = x.gather(1, feature[at]), value[at]
        goes = _COMPARE[modes[0]](given, bound)
        for number, name in enumerate(modes[1:], start=1):
            goes = torch.where(mode[at] == number, _COMPARE[name](given, bound), goes)
        if any(s.nan_is_yes for s in splits):
            goes = goes | (torch.isnan(given) & nan[at])
        at = torch.where(goes, yes[at], no[at])
    return at - count


def _aggregated(forest: Forest, x: Tensor, targets: int, how: str) -> Tensor:
    """The weights of the leaves that x comes to, by target [N, targets]."""
    rows = _leaf_rows(forest, x)
    absent = {"MIN": math.inf, "MAX": -math.inf}.get(how, 0.0)
    table = torch.tensor(
        [[leaf.get(target, absent) for target in range(targets)] for leaf in forest.leaves],
        dtype=x.dtype,
        device=x.device,
    )
    if how in ("SUM", "AVERAGE"):
        total = F.embedding_bag(rows, table, mode="sum")
        return total / len(forest.roots) if how == "AVERAGE" else total
    sign = -1 if how == "MIN" else 1
    made = sign * F.embedding_bag(rows, sign * table, mode="max")
    return torch.where(made.isinf(), 0, made)


def _float_list(call: Call, name: str) -> list[float]:
    """An attribute of floats, or of a tensor in its place (``name_as_tensor``)."""
    if not call.has(f"{name}_as_tensor"):
        return list(call.numbers(name, ()))
    return _numbers(call, f"{name}_as_tensor")


def _numbers(call: Call, name: str) -> list[Any]:
    if not call.has(name):
        return []
    weight = call.tensor(name)
    array = weight.read()
    if array is None:
        raise ModelLoadError(f"node {call.node.label}: the values of {name} are missing")
    return list(as_tensor(array, weight.element).reshape(-1).tolist())


def _forest_by_ids(call: Call, kind: str) -> Forest:
    """The forest of a TreeEnsembleClassifier (``kind`` class) or -Regressor (target)."""
    trees, ids = call.integers("nodes_treeids"), call.integers("nodes_nodeids")
    modes: Sequence[str] = call.get("nodes_modes")
    keys = list(zip(trees, ids, strict=True))
    inner = [i for i, mode in enumerate(modes) if mode != "LEAF"]
    outer = [i for i, mode in enumerate(modes) if mode == "LEAF"]
    places = {keys[i]: place for place, i in enumerate(inner)}
    places |= {keys[i]: -1 - place for place, i in enumerate(outer)}
    values, nan = _float_list(call, "nodes_values"), call.get("nodes_missing_value_tracks_true")
    features = call.integers("nodes_featureids")
    yes, no = call.integers("nodes_truenodeids"), call.integers("nodes_falsenodeids")
    splits = [
        Split(
            mode=modes[i],
            feature=features[i],
            value=values[i],
            yes=places[trees[i], yes[i]],
            no=places[trees[i], no[i]],
            nan_is_yes=bool(nan and nan[i]),
        )
        for i in inner
    ]
    weights: dict[tuple[int, int], dict[int, float]] = defaultdict(lambda: defaultdict(float))
    columns = (call.integers(f"{kind}_{name}") for name in ("treeids", "nodeids", "ids"))
    for tree, node, target, weight in zip(
        *columns, _float_list(call, f"{kind}_weights"), strict=True
    ):
        weights[tree, node][target] += weight
    first = {tree: keys[i] for i, tree in reversed(list(enumerate(trees)))}
    roots = [places[first[tree]] for tree in dict.fromkeys(trees)]
    return Forest(splits, roots, [dict(weights[keys[i]]) for i in outer])


def _forest_of_arrays(call: Call) -> Forest:
    """The forest of a TreeEnsemble; a set's members are compared one after the other."""
    modes = [_MODES[int(mode)] for mode in _numbers(call, "nodes_modes")]
    values, nan = _numbers(call, "nodes_splits"), call.get("nodes_missing_value_tracks_true")
    features = call.integers("nodes_featureids")

    def below(side: str) -> list[int]:
        ids = call.integers(f"nodes_{side}nodeids")
        leaf = call.integers(f"nodes_{side}leafs")
        return [-1 - n if is_leaf else n for n, is_leaf in zip(ids, leaf, strict=True)]

    yes, no = below("true"), below("false")
    splits = [
        Split(modes[i], features[i], values[i], yes[i], no[i], bool(nan and nan[i]))
        for i in range(len(modes))
    ]
    members = _sets(_numbers(call, "membership_values"))
    for split in splits[:]:
        if split.mode == "BRANCH_MEMBER":
            _compare_each(splits, split, next(members))
    targets = call.integers("leaf_targetids")
    weights = _numbers(call, "leaf_weights")
    leaves = [{target: weight} for target, weight in zip(targets, weights, strict=True)]
    return Forest(splits, list(call.integers("tree_roots")), leaves)


def _sets(values: Iterable[float]) -> Any:
    """The sets of a list in which a nan ends each."""
    found: list[float] = []
    for value in values:
        if math.isnan(value):
            yield found
            found = []
        else:
            found.append(value)
    if found:
        yield found


def _compare_each(splits: list[Split], split: Split, members: Sequence[float]) -> None:
    """Make a split by a set one by its first member, with splits by the others below it."""
    split.mode, end = "BRANCH_EQ", split.no
    split.value = members[0]
    for member in members[1:]:
        split.no = len(splits)
        split = Split("BRANCH_EQ", split.feature, member, split.yes, end, split.nan_is_yes)
        splits.append(split)


def _rows(x: Tensor) -> Tensor:
    return x if x.dtype is torch.float64 else x.float()


@rule("TreeEnsemble", domain=ML, since=5)
def tree_ensemble(call: Call, x: Tensor) -> Tensor:
    """The aggregated weights [N, targets] of the leaves, of x's type."""
    how = _AGGREGATES[call.integer("aggregate_function", 1)]
    scores = _aggregated(_forest_of_arrays(call), _rows(x), call.integer("n_targets"), how)
    made = post_transform(scores, _TRANSFORMS[call.integer("post_transform", 0)])
    return made.to(x.dtype)


@rule("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(call: Call, x: Tensor) -> Tensor:
    """The aggregated weights [N, targets] of the leaves and base values, float32."""
    how = call.text("aggregate_function", "SUM")
    forest, rows = _forest_by_ids(call, "target"), _rows(x)
    scores = _aggregated(forest, rows, call.integer("n_targets"), how)
    scores = _with_base(call, scores)
    return post_transform(scores, call.text("post_transform", "NONE")).float()


def _with_base(call: Call, scores: Tensor) -> Tensor:
    base = _float_list(call, "base_values")
    return scores + torch.tensor(base, dtype=scores.dtype, device=scores.device) if base else scores


@rule("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(call: Call, x: Tensor) -> tuple[Any, Tensor]:
    """The label [N] of the largest score, and the scores [N, classes] float32."""
    labels = call.get("classlabels_strings") or call.integers("classlabels_int64s")
    forest, rows = _forest_by_ids(call, "class"), _rows(x)
    used = {target for leaf in forest.leaves for target in leaf}
    transform = call.text("post_transform", "NONE")
    if len(used) == 1 and len(labels) == 2:
        return _of_two(call, forest, rows, labels, used.pop(), transform)
    scores = _with_base(call, _aggregated(forest, rows, len(labels), "SUM"))
    made = post_transform(scores, transform).float()
    return labelled(scores.argmax(1), labels), made


def _of_two(
    call: Call, forest: Forest, rows: Tensor, labels: Sequence[Any], target: int, transform: str
) -> tuple[Any, Tensor]:
    """Two classes with scores of one: the second's; a probability where no weight is negative.

    Source: onnxruntime/core/providers/cpu/ml/tree_ensemble_aggregator.h, TreeAggregatorClassifier,
    and ml_common.h, write_scores.
    """
    score = _aggregated(forest, rows, target + 1, "SUM")[:, target:]
    base = _float_list(call, "base_values")
    if base:
        score = score + base[-1]
    if all(weight >= 0 for leaf in forest.leaves for weight in leaf.values()):
        made, second = torch.cat([1 - score, score], 1), score > 0.5
    else:
        made, second = post_transform(torch.cat([-score, score], 1), transform), score > 0
    return labelled(second[:, 0].long(), labels), made.float()
