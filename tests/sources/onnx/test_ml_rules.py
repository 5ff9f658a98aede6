"""ai.onnx.ml: the rules give what ONNX Runtime's kernels give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import GraphProto, ModelProto, TensorProto, helper

from graphmem.errors import InputError
from graphmem.sources.onnx import rules as _rules  # registers them
from graphmem.sources.onnx.module import build_module
from graphmem.sources.onnx.read import as_model
from graphmem.sources.onnx.rules.ml_models import post_transform
from tests.sources.onnx import backend

assert _rules

_FLOAT = TensorProto.FLOAT
_X = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
_NAN = np.where(np.abs(_X) < 0.3, np.nan, _X).astype(np.float32)
_WORDS = np.array([["a", "b"], ["z", "c"]], dtype=object)


def _model(op: str, inputs: list[np.ndarray], outputs: int, version: int, **attributes: Any) -> Any:
    names = [f"x{i}" for i in range(len(inputs))]
    kinds = {"f": _FLOAT, "d": TensorProto.DOUBLE, "l": TensorProto.INT64, "O": TensorProto.STRING}
    graph = GraphProto(name="g")
    given = {name: value for name, value in attributes.items() if value is not None}
    made = [f"y{i}" for i in range(outputs)]
    graph.node.append(helper.make_node(op, names, made, domain="ai.onnx.ml", **given))
    for name, array in zip(names, inputs, strict=True):
        kind = kinds[array.dtype.char]
        graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
    graph.output.extend(helper.make_empty_tensor_value_info(name) for name in made)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _run(model: ModelProto, inputs: list[np.ndarray]) -> tuple[Any, ...]:
    module = build_module(as_model(model, "m.onnx"), weights=True)
    result = module(*(x if x.dtype == object else torch.from_numpy(x) for x in inputs))
    return result if isinstance(result, tuple) else (result,)


def _runtime(model: ModelProto, inputs: list[np.ndarray]) -> list[Any]:
    runtime = pytest.importorskip("onnxruntime", reason="the oracle is ONNX Runtime")
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    named = zip(session.get_inputs(), inputs, strict=True)
    return list(session.run(None, {given.name: array for given, array in named}))


def _tree(kind: str, mode: str = "BRANCH_LEQ") -> dict[str, Any]:
    """Two trees of three and one comparisons; ``kind`` is class or target."""
    return {
        "nodes_treeids": [0] * 7 + [1] * 3,
        "nodes_nodeids": [0, 1, 2, 3, 4, 5, 6, 0, 1, 2],
        "nodes_featureids": [0, 1, 2, 0, 0, 0, 0, 1, 0, 0],
        "nodes_values": [0.1, -0.2, 0.3, 0.0, 0.0, 0.0, 0.0, 0.4, 0.0, 0.0],
        "nodes_modes": [*[mode] * 3, *["LEAF"] * 4, mode, "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 3, 5, 0, 0, 0, 0, 1, 0, 0],
        "nodes_falsenodeids": [2, 4, 6, 0, 0, 0, 0, 2, 0, 0],
        "nodes_missing_value_tracks_true": [1, 0, 1, 0, 0, 0, 0, 1, 0, 0],
        f"{kind}_treeids": [0, 0, 0, 0, 0, 1, 1],
        f"{kind}_nodeids": [3, 4, 4, 5, 6, 1, 2],
        f"{kind}_ids": [0, 1, 0, 1, 0, 1, 0],
        f"{kind}_weights": [0.5, 0.25, 0.125, 2.0, 0.75, 0.3, 0.2],
    }


def _binary(weights: list[float]) -> dict[str, Any]:
    """The trees, with all weights for class 0."""
    ids = {"class_ids": [0] * 7, "class_weights": weights}
    return {**_tree("class"), **ids, "classlabels_int64s": [4, 9]}


_SVM = {
    "support_vectors": _X[:6].reshape(-1).tolist(),
    "kernel_params": [0.4, 0.5, 3.0],
}
_KERNEL = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}
_SVC = {
    **_SVM,
    "vectors_per_class": [2, 3, 1],
    "coefficients": np.linspace(-1, 1, 12).tolist(),
    "rho": [0.1, -0.2, 0.3],
    "classlabels_ints": [5, 6, 7],
}
_PAIR = {
    **_SVM,
    "vectors_per_class": [2, 4],
    "coefficients": np.linspace(-1, 1, 6).tolist(),
    "rho": [0.1],
    "classlabels_ints": [5, 6],
}
_PROBA = {"prob_a": [-1.5, -0.9, -1.1], "prob_b": [0.1, 0.2, -0.1]}
_LINEAR3 = {"coefficients": np.linspace(-1, 1, 9).tolist(), "intercepts": [0.1, 0.2, 0.3]}
_LINEAR1 = {"coefficients": [0.5, -1.0, 0.25], "intercepts": [0.1]}

_CASES: dict[str, tuple[str, list[np.ndarray], int, int, dict[str, Any]]] = {
    "features": ("ArrayFeatureExtractor", [_X, np.array([2, 0])], 1, 1, {}),
    "features of a row": ("ArrayFeatureExtractor", [_X[0], np.array([2, 0])], 1, 1, {}),
    "binarizer": ("Binarizer", [_X], 1, 1, {"threshold": 0.2}),
    "feature vectors": ("FeatureVectorizer", [_X, _X], 1, 1, {"inputdimensions": [3, 3]}),
    "imputer": (
        "Imputer",
        [_NAN],
        1,
        1,
        {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": float("nan")},
    ),
    "imputer of integers": (
        "Imputer",
        [np.array([[1, -1, 3]])],
        1,
        1,
        {"imputed_value_int64s": [7], "replaced_value_int64": -1},
    ),
    "normalizer max": ("Normalizer", [np.abs(_X)], 1, 1, {"norm": "MAX"}),
    "normalizer l1": ("Normalizer", [_X], 1, 1, {"norm": "L1"}),
    "normalizer l2": ("Normalizer", [_X], 1, 1, {"norm": "L2"}),
    "normalizer of zeros": ("Normalizer", [np.zeros((2, 3), np.float32)], 1, 1, {"norm": "L2"}),
    "scaler": ("Scaler", [_X], 1, 1, {"offset": [0.1, 0.2, 0.3], "scale": [1.0, 2.0, 3.0]}),
    "one hot": ("OneHotEncoder", [np.array([[1, 5], [2, 1]])], 1, 1, {"cats_int64s": [1, 2, 3]}),
    "one hot of strings": ("OneHotEncoder", [_WORDS], 1, 1, {"cats_strings": ["c", "a"]}),
    "categories": (
        "CategoryMapper",
        [_WORDS],
        1,
        1,
        {"cats_strings": ["a", "b"], "cats_int64s": [4, 5], "default_int64": -3},
    ),
    "categories back": (
        "CategoryMapper",
        [np.array([4, 6])],
        1,
        1,
        {"cats_strings": ["a", "b"], "cats_int64s": [4, 5], "default_string": "none"},
    ),
    "classes": (
        "LabelEncoder",
        [_WORDS],
        1,
        1,
        {"classes_strings": ["a", "b"], "default_int64": -3},
    ),
    "classes back": ("LabelEncoder", [np.array([1, 6])], 1, 1, {"classes_strings": ["a", "b"]}),
    "labels": (
        "LabelEncoder",
        [np.array([3, 9, 1])],
        1,
        2,
        {"keys_int64s": [1, 3], "values_floats": [0.5, 1.5], "default_float": 9.0},
    ),
    "labels of floats": (
        "LabelEncoder",
        [np.array([np.nan, 1, 2], np.float32)],
        1,
        4,
        {"keys_floats": [float("nan"), 1.0], "values_int64s": [7, 8]},
    ),
    "labels to strings": (
        "LabelEncoder",
        [np.array([3, 9, 1])],
        1,
        2,
        {"keys_int64s": [1, 3], "values_strings": ["one", "three"]},
    ),
    "linear regression": ("LinearRegressor", [_X], 1, 1, {**_LINEAR3, "targets": 3}),
    "linear regression, softmax": (
        "LinearRegressor",
        [_X],
        1,
        1,
        {**_LINEAR3, "targets": 3, "post_transform": "SOFTMAX"},
    ),
    "linear classes": ("LinearClassifier", [_X], 2, 1, {**_LINEAR3, "classlabels_ints": [5, 6, 7]}),
    "linear classes, logistic": (
        "LinearClassifier",
        [_X],
        2,
        1,
        {**_LINEAR3, "classlabels_ints": [5, 6, 7], "post_transform": "LOGISTIC"},
    ),
    "linear classes, softmax of zeros": (
        "LinearClassifier",
        [_X],
        2,
        1,
        {**_LINEAR3, "classlabels_strings": ["a", "b", "c"], "post_transform": "SOFTMAX_ZERO"},
    ),
    "linear, two classes": (
        "LinearClassifier",
        [_X],
        2,
        1,
        {**_LINEAR1, "classlabels_ints": [0, 1]},
    ),
    "linear, two classes, logistic": (
        "LinearClassifier",
        [_X],
        2,
        1,
        {**_LINEAR1, "classlabels_strings": ["a", "b"], "post_transform": "LOGISTIC"},
    ),
    "svm regression": (
        "SVMRegressor",
        [_X],
        1,
        1,
        {
            **_SVM,
            "n_supports": 6,
            "coefficients": np.linspace(-1, 1, 6).tolist(),
            "rho": [0.2],
            "kernel_type": "RBF",
        },
    ),
    "svm regression, linear": (
        "SVMRegressor",
        [_X],
        1,
        1,
        {**_KERNEL, "coefficients": [1.0, 2.0, 3.0], "rho": [0.2]},
    ),
    "svm of one class": (
        "SVMRegressor",
        [_X],
        1,
        1,
        {
            **_SVM,
            "n_supports": 6,
            "coefficients": np.linspace(-1, 1, 6).tolist(),
            "rho": [0.2],
            "one_class": 1,
        },
    ),
    "svm poly": ("SVMClassifier", [_X], 2, 1, {**_SVC, "kernel_type": "POLY"}),
    "svm sigmoid": ("SVMClassifier", [_X], 2, 1, {**_SVC, "kernel_type": "SIGMOID"}),
    "svm rbf, probabilities": (
        "SVMClassifier",
        [_X],
        2,
        1,
        {**_SVC, **_PROBA, "kernel_type": "RBF"},
    ),
    "svm of two": ("SVMClassifier", [_X], 2, 1, {**_PAIR, "kernel_type": "RBF"}),
    "svm of two, probabilities": (
        "SVMClassifier",
        [_X],
        2,
        1,
        {**_PAIR, "kernel_type": "RBF", "prob_a": [-1.5], "prob_b": [0.1]},
    ),
    "svm, linear": (
        "SVMClassifier",
        [_X],
        2,
        1,
        {
            **_KERNEL,
            "coefficients": np.linspace(-1, 1, 9).tolist(),
            "rho": [0.1],
            "classlabels_ints": [5, 6, 7],
        },
    ),
    "trees": (
        "TreeEnsembleRegressor",
        [_X],
        1,
        1,
        {**_tree("target"), "n_targets": 2, "base_values": [0.1, 0.2]},
    ),
    "trees with nan": ("TreeEnsembleRegressor", [_NAN], 1, 1, {**_tree("target"), "n_targets": 2}),
    "trees, average": (
        "TreeEnsembleRegressor",
        [_X],
        1,
        1,
        {**_tree("target"), "n_targets": 2, "aggregate_function": "AVERAGE"},
    ),
    "trees, least": (
        "TreeEnsembleRegressor",
        [_X],
        1,
        1,
        {**_tree("target"), "n_targets": 2, "aggregate_function": "MIN"},
    ),
    "trees, most": (
        "TreeEnsembleRegressor",
        [_X],
        1,
        1,
        {**_tree("target", "BRANCH_GT"), "n_targets": 2, "aggregate_function": "MAX"},
    ),
    "tree classes": (
        "TreeEnsembleClassifier",
        [_X],
        2,
        1,
        {**_tree("class"), "class_ids": [0, 1, 2, 1, 0, 2, 0], "classlabels_int64s": [4, 5, 6]},
    ),
    "tree classes, softmax": (
        "TreeEnsembleClassifier",
        [_X],
        2,
        1,
        {
            **_tree("class"),
            "class_ids": [0, 1, 2, 1, 0, 2, 0],
            "classlabels_strings": ["a", "b", "c"],
            "post_transform": "SOFTMAX",
        },
    ),
    "trees, two classes": (
        "TreeEnsembleClassifier",
        [_X],
        2,
        1,
        _binary([0.5, 0.25, 0.125, 0.1, 0.2, 0.3, 0.2]),
    ),
    "trees, two classes, negative": (
        "TreeEnsembleClassifier",
        [_X],
        2,
        1,
        _binary([0.5, -0.25, 0.125, -1.0, 0.2, 0.3, 0.2]),
    ),
    "trees, two classes, logistic": (
        "TreeEnsembleClassifier",
        [_X],
        2,
        1,
        {
            **_binary([0.5, -0.25, 0.125, -1.0, 0.2, 0.3, 0.2]),
            "post_transform": "LOGISTIC",
            "base_values": [0.3],
        },
    ),
}


@pytest.mark.parametrize("name", _CASES)
def test_a_rule_gives_what_onnx_runtime_gives(name: str) -> None:
    op, inputs, outputs, version, attributes = _CASES[name]
    model = _model(op, inputs, outputs, version, **attributes)
    wanted = _runtime(model, inputs)
    for got, expected in zip(_run(model, inputs), wanted, strict=True):
        array = np.asarray(got)
        assert array.shape == expected.shape
        if expected.dtype.kind in "OU":
            assert array.tolist() == expected.tolist()
        else:
            assert array.dtype == expected.dtype
            np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name",
    list(backend.of_operator("ArrayFeatureExtractor", "Binarizer", "LabelEncoder", "TreeEnsemble")),
)
def test_the_node_tests_pass(name: str) -> None:
    assert backend.run_case(backend.cases()[name]) is None


def test_a_dictionary_becomes_a_vector_of_its_vocabulary() -> None:
    """The type of its values: floats, or integers."""
    model = _model("DictVectorizer", [_X], 1, 1, string_vocabulary=["a", "c", "b", "z"])
    module = build_module(as_model(model, "m.onnx"), weights=True)
    assert module({"a": 4.0, "c": 8.0}).tolist() == [4.0, 8.0, 0.0, 0.0]
    assert module({"b": 3}).tolist() == [0, 0, 3, 0]
    assert module({"z": "text"}).tolist() == ["", "", "", "text"]


def test_scores_become_dictionaries_by_label() -> None:
    """One for each row."""
    model = _model("ZipMap", [_X], 1, 1, classlabels_strings=["a", "b", "c"])
    (rows,) = _run(model, [_X])
    assert [{k: v.item() for k, v in row.items()} for row in rows] == [
        dict(zip("abc", row, strict=True)) for row in _X.tolist()
    ]


def test_a_value_of_no_category_is_an_error_where_the_file_says_so() -> None:
    """Attribute ``zeros`` is 0."""
    model = _model("OneHotEncoder", [np.array([[1, 9]])], 1, 1, cats_int64s=[1, 2], zeros=0)
    with pytest.raises(InputError, match="of no category"):
        _run(model, [np.array([[1, 9]])])


def test_probit_is_the_quantile_of_the_normal_distribution() -> None:
    """The middle is 0, and 97.5 % lie below 1.959964."""
    made = post_transform(torch.tensor([[0.5, 0.975]], dtype=torch.float64), "PROBIT")
    np.testing.assert_allclose(made, [[0.0, 1.959964]], atol=1e-6)
