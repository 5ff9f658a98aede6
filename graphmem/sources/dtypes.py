"""The names that a dtype goes by: torch's own, and the short ones that people type."""

from __future__ import annotations

import re

import torch

from graphmem.errors import InputError
from graphmem.options import nearest

_SHORT = {
    "fp64": torch.float64,
    "f64": torch.float64,
    "fp32": torch.float32,
    "f32": torch.float32,
    "fp16": torch.float16,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "boolean": torch.bool,
}
_WITHOUT_TENSORS = re.compile(r"u?int[1-7]|bits.*")  # dtypes that torch can't make tensors of
_BY_NAME = _SHORT | {
    name: value
    for name, value in vars(torch).items()
    if isinstance(value, torch.dtype) and not _WITHOUT_TENSORS.fullmatch(name)
}


def dtype_named(name: str) -> torch.dtype:
    """The dtype called ``name``: ``int64``, ``bf16``, ``fp32``, ``torch.float16``, ...

    Raises:
        InputError: no dtype has this name; says the nearest one.
    """
    key = name.removeprefix("torch.").lower()
    if key not in _BY_NAME:
        hint = nearest(key, _BY_NAME) or "; write int64, float32, bf16, ..."
        raise InputError(f"{name!r} is not a dtype{hint}")
    return _BY_NAME[key]


def dtype_name(dtype: torch.dtype) -> str:
    """The full name of a dtype, without ``torch.``: ``bfloat16``."""
    return str(dtype).removeprefix("torch.")
