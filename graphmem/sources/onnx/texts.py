"""Strings: NumPy arrays of objects, which operators that only move elements move as codes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from graphmem.sources.onnx.model import Array

Rule = TypeVar("Rule", bound=Callable[..., Any])


def as_array(values: Any, shape: tuple[int, ...] | None = None) -> Array:
    """Strings as an array of objects."""
    made = np.asarray(values, dtype=object)
    return made if shape is None else made.reshape(shape)


def encoded(arrays: list[Array]) -> tuple[list[Tensor], Array]:
    """Arrays as int64 tensors of codes, in the strings' order, and the strings by code."""
    flat = np.concatenate([as_array(array).reshape(-1) for array in arrays])
    pool, codes = np.unique(flat, return_inverse=True)
    parts = torch.from_numpy(codes.astype(np.int64)).split([int(a.size) for a in arrays])
    return [p.reshape(a.shape) for p, a in zip(parts, arrays, strict=True)], as_array(pool)


def decoded(codes: Tensor, pool: Array) -> Array:
    """The strings that codes stand for."""
    numbers = codes.reshape(-1).tolist()
    return as_array([pool[number] for number in numbers], tuple(codes.shape))


def moves_elements(rule: Rule) -> Rule:
    """Let a rule that only moves or compares elements of tensors do so with strings, too."""

    @wraps(rule)
    def with_strings(call: Any, *inputs: Any) -> Any:
        places = [i for i, value in enumerate(inputs) if isinstance(value, np.ndarray)]
        if not places:
            return rule(call, *inputs)
        codes, pool = encoded([inputs[i] for i in places])
        given = list(inputs)
        for place, code in zip(places, codes, strict=True):
            given[place] = code
        result = rule(call, *given)
        if isinstance(result, Tensor):
            return decoded(result, pool)
        return type(result)(decoded(part, pool) for part in result)

    return with_strings  # type: ignore[return-value]
