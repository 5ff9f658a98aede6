"""Conversions between element types."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmem.errors import ModelLoadError
from graphmem.sources.onnx.element_types import ElementType
from graphmem.sources.onnx.model import Array
from graphmem.sources.onnx.narrow import (
    FLOATS8,
    SMALL_FLOATS,
    SMALL_INTEGERS,
    bits_of,
    from_bits,
    to_e8m0,
    to_float8,
    to_small_float,
    to_small_integer,
)
from graphmem.sources.onnx.registry import Call, rule


@rule("Cast")
def cast_by_name(call: Call, x: Any) -> Any:
    """To the element type that the string ``to`` names."""
    name = call.text("to").upper()
    if name not in ElementType.__members__:
        raise ModelLoadError(f"node {call.node.name} (Cast): {name!r} is no element type")
    return _cast(call, x, ElementType[name])


@rule("Cast", since=6)
def cast(call: Call, x: Any) -> Any:
    """To the element type ``to``."""
    return _cast(call, x, ElementType(call.integer("to")))


@rule("CastLike", since=15)
def cast_like(call: Call, x: Any, target: Any) -> Any:
    """To the element type of the second input.

    Where the file does not state it, it is what torch holds: a byte if it has less bits.
    """
    held = ElementType.STRING if isinstance(target, np.ndarray) else ElementType.of(target.dtype)
    return _cast(call, x, call.element(1) or held)


def _cast(call: Call, x: Any, to: ElementType) -> Any:
    if isinstance(x, np.ndarray):
        if to is ElementType.STRING:
            return x
        x = _parsed(x, to)
    if to is ElementType.STRING:
        return _as_text(x)
    saturate = bool(call.integer("saturate", 1))
    if to in FLOATS8:
        return to_float8(x, to, saturate)
    if to is ElementType.FLOAT8E8M0:
        return to_e8m0(x, saturate, call.text("round_mode", "up"))
    if to in SMALL_FLOATS:
        return to_small_float(x, to)
    if to in SMALL_INTEGERS:
        return to_small_integer(x, to)
    return x.to(to.dtype)


def _parsed(strings: Array, to: ElementType) -> Tensor:
    """Strings as numbers; Python reads all forms that ONNX names, such as ``1e-5`` and ``+INF``."""
    numbers = [str(s) for s in strings.reshape(-1)]
    dtype = to.dtype
    if dtype is None or dtype.is_floating_point or dtype is torch.bool:
        made = torch.tensor([float(n) for n in numbers], dtype=torch.float64)
    elif to is ElementType.UINT64:
        made = torch.tensor([_whole(n) for n in numbers], dtype=torch.uint64)
    else:
        made = torch.tensor([_whole(n) for n in numbers], dtype=torch.int64)
    return made.reshape(strings.shape)


def _whole(number: str) -> int:
    try:
        return int(number)
    except ValueError:
        return int(float(number))


def _as_text(x: Tensor) -> Array:
    """Numbers as strings, as NumPy writes them."""
    unknown = x.dtype is torch.bfloat16 or (x.dtype.is_floating_point and x.dtype.itemsize == 1)
    plain = x.float() if unknown else x
    return plain.detach().numpy().astype(str).astype(object)


@rule("BitCast", since=26)
def bit_cast(call: Call, x: Tensor) -> Tensor:
    """The same bits as another type of as many."""
    to = ElementType(call.integer("to"))
    if to.dtype is None:
        raise ModelLoadError(f"node {call.node.name} (BitCast): strings have no fixed bits")
    if to.bits >= 8:
        return x.view(to.dtype)
    return from_bits(bits_of(x, call.element(0) or _narrowest(x, to)), to)


def _narrowest(x: Tensor, to: ElementType) -> ElementType:
    """The type of less than a byte that torch holds as ``x``, of as many bits as another."""
    kinds = [*SMALL_INTEGERS, *SMALL_FLOATS]
    return next(kind for kind in kinds if kind.dtype is x.dtype and kind.bits == to.bits)
