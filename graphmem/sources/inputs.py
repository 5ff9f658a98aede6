"""Inputs that exist as a shape and a dtype only, and what a user asks of them.

An ``InputSpec`` with a fill has known values; one without has none, and the tracer makes
an unknown tensor of it. The text form, read by ``spec``, is ``[NAME=]SHAPE[:DTYPE][=FILL]``:

    32x3x224x224          float32, values unknown
    8x1024:int64          int64
    8x128:int64=1         int64, all ones: the values are known
    tokens=8x1024:int64   for the keyword argument ``tokens``
    :int64                a scalar
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from graphmem.errors import InputError
from graphmem.options import nearest
from graphmem.sources.dtypes import dtype_name, dtype_named

_TEXT = re.compile(
    r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>\d+(?:x\d+)*)?(?::(?P<dtype>[\w.]+))?(?:=(?P<fill>.+))?"
)
_NAMED_FILLS = ("zeros", "ones", "arange")


@dataclass(frozen=True, slots=True)
class InputSpec:
    """A tensor that is known by shape and dtype.

    ``fill`` says what the values are: zeros, ones, arange (counted along the last
    dimension, each row the same) or a number; None if they are not known. ``name`` is the
    argument that it is for. ``high`` bounds the values of an integer input whose values
    are not known (0 <= value < high), such as a vocabulary's size bounds its ids.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    fill: str | None = None
    name: str | None = None
    high: int | None = None

    def materialize(self) -> Tensor:
        """A real CPU tensor with the values that ``fill`` says, of shape ``self.shape``.

        Raises:
            InputError: there is no fill, or the dtype can't hold it.
        """
        if self.fill is None:
            raise InputError(f"input {self}: its values are not known; add =zeros or another fill")
        if self.fill == "arange":
            return self._counted()
        value = {"zeros": "0", "ones": "1"}.get(self.fill, self.fill)
        return torch.full(self.shape, _number(value, self), dtype=self.dtype, device="cpu")

    def example(self) -> Tensor:
        """A real CPU tensor that may stand in for this input where a model is run for real.

        Where no values are known floats are normal and integers lie below ``high``; they
        are all zero, which is a valid index of everything, where there is no ``high``.
        """
        if self.fill is not None:
            return self.materialize()
        if self.high is not None:
            return torch.randint(self.high, self.shape, dtype=self.dtype, device="cpu")
        values = torch.zeros(self.shape, dtype=self.dtype, device="cpu")
        return values.normal_() if self.dtype in _NORMAL else values

    def _counted(self) -> Tensor:
        row = torch.arange(self.shape[-1] if self.shape else 1, device="cpu").to(self.dtype)
        return row.expand(self.shape).clone() if self.shape else row[0].clone()

    def __str__(self) -> str:
        name = f"{self.name}=" if self.name else ""
        fill = f"={self.fill}" if self.fill else ""
        return f"{name}{'x'.join(map(str, self.shape))}:{dtype_name(self.dtype)}{fill}"


_NORMAL = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class InputRequest:
    """What the command line asks of a subject's inputs.

    ``inputs`` are the texts of ``--input``. ``dtype`` is what a model that is built from a
    name or a configuration is built in, with its made inputs; None keeps the model's own.
    ``labels`` asks for what a model needs to return a loss.

    The rest is for ONNX models: ``dims`` are the texts of ``--dim``, ``default_dim`` the size
    of free dimensions that nothing else gives, ``rules`` a file with the user's own operators.
    """

    inputs: tuple[str, ...] = ()
    batch: int | None = None
    seq: int | None = None
    task: str | None = None
    dtype: torch.dtype | None = None
    labels: bool = False
    dims: tuple[str, ...] = ()
    default_dim: int | None = None
    rules: str | None = None

    def __post_init__(self) -> None:
        for option, value in (("--batch", self.batch), ("--seq", self.seq)):
            if value is not None and value < 1:
                raise InputError(f"{option} {value}: must be at least 1")


@dataclass(frozen=True, slots=True)
class ModelInputs:
    """The arguments of a model's forward: pytrees of tensors and ``InputSpec``."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


def spec(text: str, default: torch.dtype = torch.float32) -> InputSpec:
    """The input that ``[NAME=]SHAPE[:DTYPE][=FILL]`` describes; ``default`` is its dtype.

    Raises:
        InputError: the text can't be read; says how to write it.
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None or not (match["shape"] or match["dtype"]):
        raise InputError(f"input {text!r}: {_what_is_wrong(text)}")
    shape = tuple(int(size) for size in (match["shape"] or "").split("x") if size)
    try:
        dtype = dtype_named(match["dtype"]) if match["dtype"] else default
    except InputError as error:
        raise InputError(f"input {text!r}: {error}") from None
    read = InputSpec(shape, dtype, match["fill"], match["name"])
    if read.fill is not None and read.fill != "arange":
        _number({"zeros": "0", "ones": "1"}.get(read.fill, read.fill), read)
    return read


def as_inputs(value: Any) -> ModelInputs:
    """Arguments from what a factory, or a caller of the Python interface, gives as inputs.

    A tuple or list holds positional arguments and a mapping keyword arguments; anything
    else is the one argument. Texts such as ``"32x3x224x224"`` are read by ``spec``.
    """
    if value is None:
        return ModelInputs()
    if isinstance(value, Mapping):
        return ModelInputs(kwargs={str(k): _read(v) for k, v in value.items()})
    values = tuple(_read(v) for v in (value if type(value) in (tuple, list) else (value,)))
    named = {v.name: v for v in values if isinstance(v, InputSpec) and v.name is not None}
    return ModelInputs(
        tuple(v for v in values if not (isinstance(v, InputSpec) and v.name is not None)), named
    )


def _read(value: Any) -> Any:
    return spec(value) if isinstance(value, str) else value


def _number(text: str, of: InputSpec) -> float | int:
    """The number that a fill says, if the dtype holds it."""
    try:
        value = float(text) if of.dtype.is_floating_point or of.dtype.is_complex else int(text)
        torch.full((), value, dtype=of.dtype, device="cpu")
    except (ValueError, RuntimeError) as error:
        kind = f"{dtype_name(of.dtype)} number, {', '.join(_NAMED_FILLS)}"
        hint = nearest(text, _NAMED_FILLS) if text[:1].isalpha() else ""
        raise InputError(f"input {of}: {text!r} is no {kind}{hint}") from error
    return value


def _what_is_wrong(text: str) -> str:
    if re.search(r"\d\s*[,*X]\s*\d", text):
        return "write the shape with x between the sizes, as 32x3x224x224"
    if re.search(r"-\d", text):
        return "a size can't be negative"
    return "write [NAME=]SHAPE[:DTYPE][=VALUE], as 32x3x224x224 or tokens=8x1024:int64"
