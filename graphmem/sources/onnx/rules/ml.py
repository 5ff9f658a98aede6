"""ai.onnx.ml: operators that prepare features, and map labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmem.errors import InputError, ModelLoadError, ValueNeededError
from graphmem.sources.onnx import bounds
from graphmem.sources.onnx.model import Array
from graphmem.sources.onnx.module import as_tensor
from graphmem.sources.onnx.registry import Call, rule
from graphmem.sources.onnx.texts import as_array, moves_elements

ML = "ai.onnx.ml"


@rule("ArrayFeatureExtractor", domain=ML)
@moves_elements
def array_feature_extractor(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    """Columns of x [N, C], or of [C] as [1, C]."""
    rows = x.unsqueeze(0) if x.dim() == 1 else x
    return rows.index_select(-1, indices.reshape(-1))


@rule("Binarizer", domain=ML)
def binarizer(call: Call, x: Tensor) -> Tensor:
    """1 above the threshold, else 0, of x's type."""
    return (x > call.number("threshold", 0.0)).to(x.dtype)


@rule("FeatureVectorizer", domain=ML)
def feature_vectorizer(call: Call, *parts: Tensor) -> Tensor:
    """Parts [N, C] side by side as float32, cut or filled with zeros to ``inputdimensions``."""
    rows = [part.unsqueeze(0) if part.dim() == 1 else part for part in parts]
    widths = call.integers("inputdimensions", tuple(row.shape[1] for row in rows))
    made = [
        torch.nn.functional.pad(row.float(), (0, width - row.shape[1]))
        for row, width in zip(rows, widths, strict=True)
    ]
    return torch.cat(made, 1)


@rule("Imputer", domain=ML)
def imputer(call: Call, x: Tensor) -> Tensor:
    """Columns of x with one value (which may be nan) replaced by one, or by one a column."""
    kind = "float" if x.is_floating_point() else "int64"
    replaced = call.get(f"replaced_value_{kind}", 0)
    imputed = torch.tensor(call.get(f"imputed_value_{kind}s"), dtype=x.dtype, device=x.device)
    return torch.where(_is_value(x, replaced), imputed, x)


def _is_value(x: Tensor, value: float) -> Tensor:
    return torch.isnan(x) if math.isnan(value) else x == value


@rule("Normalizer", domain=ML)
def normalizer(call: Call, x: Tensor) -> Tensor:
    """Rows divided by their largest value, the sum of their absolute ones, or their norm.

    A row whose divisor is 0 stays as it is.
    """
    rows = x if x.dtype is torch.float64 else x.float()
    norm = call.text("norm", "MAX")
    if norm == "MAX":
        divisor = rows.amax(-1, keepdim=True)
    else:
        divisor = torch.linalg.vector_norm(rows, 1 if norm == "L1" else 2, -1, keepdim=True)
    return (rows / torch.where(divisor == 0, 1, divisor)).float()


@rule("Scaler", domain=ML)
def scaler(call: Call, x: Tensor) -> Tensor:
    """``(x - offset) * scale`` as float32."""
    offset = torch.tensor(call.numbers("offset"), device=x.device)
    return (x - offset).float() * torch.tensor(call.numbers("scale"), device=x.device)


@rule("OneHotEncoder", domain=ML)
def one_hot_encoder(call: Call, x: Any) -> Tensor:
    """1 at the category of each element [..., categories], float32.

    Raises:
        InputError: with ``zeros`` 0, a value is of no category.
    """
    if isinstance(x, np.ndarray):
        same = torch.from_numpy(x[..., None] == as_array(call.get("cats_strings")))
    else:
        same = x.long().unsqueeze(-1) == torch.tensor(call.integers("cats_int64s")).to(x.device)
    strict = not call.integer("zeros", 1)
    if strict and bounds.is_known(same) and not bool(same.any(-1).all()):
        raise InputError(f"node {call.node.label}: the input has a value of no category")
    return same.float()


@rule("CategoryMapper", domain=ML)
def category_mapper(call: Call, x: Any) -> Any:
    """Strings as integers, or integers as strings."""
    texts, numbers = call.get("cats_strings", ()), call.integers("cats_int64s", ())
    if isinstance(x, np.ndarray):
        return mapped(x, texts, numbers, call.integer("default_int64", -1), torch.int64)
    return mapped(x, numbers, texts, call.text("default_string", "_Unused"), None)


@rule("LabelEncoder", domain=ML)
def label_encoder_of_classes(call: Call, x: Any) -> Any:
    """Strings as their position among the classes, or positions as strings."""
    classes = call.get("classes_strings", ())
    places = range(len(classes))
    if isinstance(x, np.ndarray):
        return mapped(x, classes, places, call.integer("default_int64", -1), torch.int64)
    return mapped(x, places, classes, call.text("default_string", "_Unused"), None)


_DEFAULTS: dict[str, Any] = {"strings": "_Unused", "int64s": -1, "floats": -0.0}
_DTYPES = {"strings": None, "int64s": torch.int64, "floats": torch.float32}


@rule("LabelEncoder", domain=ML, since=2)
def label_encoder(call: Call, x: Any) -> Any:
    """Each element looked up among ``keys_*``, as one of ``values_*``, or the default."""
    keys, _ = _listed(call, "keys")
    values, kind = _listed(call, "values")
    default = call.get(f"default_{kind.removesuffix('s')}", _DEFAULTS.get(kind))
    if kind != "tensor":
        return mapped(x, keys, values, default, _DTYPES[kind])
    dtype = call.tensor("values_tensor").element.dtype
    if call.has("default_tensor"):
        default = _values(call, "default_tensor")[0]
    else:
        of = "strings" if dtype is None else "floats" if dtype.is_floating_point else "int64s"
        default = _DEFAULTS[of]
    return mapped(x, keys, values, default, dtype)


def _listed(call: Call, name: str) -> tuple[Sequence[Any], str]:
    """The list of ``keys_*`` or ``values_*``, and its ending."""
    for kind in _DEFAULTS:
        if call.has(f"{name}_{kind}"):
            return call.get(f"{name}_{kind}"), kind
    return _values(call, f"{name}_tensor"), "tensor"


def _values(call: Call, name: str) -> list[Any]:
    weight = call.tensor(name)
    array = weight.read()
    if array is None:
        raise ModelLoadError(f"node {call.node.label}: the values of {name} are missing")
    if weight.element.dtype is None:
        return [t.decode() if isinstance(t, bytes) else t for t in array.reshape(-1).tolist()]
    return list(as_tensor(array, weight.element).reshape(-1).tolist())


def mapped(
    x: Any, keys: Sequence[Any], values: Sequence[Any], default: Any, dtype: torch.dtype | None
) -> Any:
    """The value of each element's key: a tensor of a dtype, or strings where it is None.

    Of equal keys the last one counts. Strings of an analysis without data are the default.
    """
    table = dict(zip(keys, values, strict=True))
    if isinstance(x, Tensor) and dtype is not None:
        return _mapped_numbers(x, table, default, dtype)
    try:
        found = [_find(table, key, default) for key in x.reshape(-1).tolist()]
    except ValueNeededError:
        found = [default] * x.numel()
    if dtype is None:
        return as_array(found, tuple(x.shape))
    return torch.tensor(found, dtype=dtype).reshape(x.shape)


def _find(table: Mapping[Any, Any], key: Any, default: Any) -> Any:
    if isinstance(key, float) and math.isnan(key):
        return next((v for k, v in table.items() if k != k), default)
    return table.get(key, default)


def _mapped_numbers(
    x: Tensor, table: Mapping[Any, Any], default: Any, dtype: torch.dtype
) -> Tensor:
    """By a search in the sorted keys; nan is looked up apart."""
    order = sorted(key for key in table if key == key)
    made = torch.full_like(x, default, dtype=dtype)
    if order:
        keys = torch.tensor(order, dtype=x.dtype, device=x.device)
        values = torch.tensor([table[key] for key in order], dtype=dtype, device=x.device)
        places = torch.searchsorted(keys, x.contiguous()).clamp_max(len(order) - 1)
        made = torch.where(keys[places] == x, values[places], made)
    if len(order) < len(table):
        made = torch.where(torch.isnan(x), _find(table, math.nan, default), made)
    return made


@rule("DictVectorizer", domain=ML)
def dict_vectorizer(call: Call, x: Mapping[Any, Any]) -> Tensor | Array:
    """The values of a dictionary [vocabulary], zeros or "" for absent keys."""
    vocabulary = call.get("string_vocabulary") or call.integers("int64_vocabulary")
    found = [x.get(key) for key in vocabulary]
    some = next(iter(x.values()), 0.0)
    if isinstance(some, str):
        return as_array(["" if value is None else value for value in found])
    dtype = torch.float32 if isinstance(some, float) else torch.int64
    return torch.tensor([0 if value is None else value for value in found], dtype=dtype)


@rule("ZipMap", domain=ML)
def zip_map(call: Call, x: Tensor) -> list[dict[Any, Tensor]]:
    """A dictionary of scalars by label for each row of x [N, C], or for x [C]."""
    labels = call.get("classlabels_strings") or call.integers("classlabels_int64s")
    rows = x.unsqueeze(0) if x.dim() == 1 else x
    return [dict(zip(labels, row.unbind(0), strict=True)) for row in rows.unbind(0)]
