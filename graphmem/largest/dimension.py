"""Which dimension is searched, and how a subject of the command line is asked for a size.

1. ``batch`` and ``seq`` are what ``--batch`` and ``--seq`` say.
2. Of an .onnx any other name is a free dimension of the file, as in ``--dim``.
3. Of any other subject it is a name that stands for a size in ``--input``:
   ``--input 8x3xSIZExSIZE``, ``--input tokens=Bx1024:int64``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from graphmem.errors import InputError
from graphmem.options import nearest
from graphmem.sources import InputRequest

_SHAPE = re.compile(r"^((?:[A-Za-z_]\w*=)?)([^:=]+)")
"""The name of an input's text, and its shape."""


def requests(subject: str, request: InputRequest, name: str) -> Callable[[int], InputRequest]:
    """What is asked of a subject's inputs, as a function of the size of a dimension.

    Raises:
        InputError: if the dimension has a size already, or is none, with the nearest.
    """
    named = {dim for text in request.inputs for dim in _names(text)}
    if name in named:
        _check_others(named - {name})
        return lambda size: replace(request, inputs=_sized(request.inputs, name, size))
    _check_others(named)
    if name in ("batch", "seq"):
        if getattr(request, name) is not None:
            raise InputError(f"--{name}: it is what is searched; leave it out, or search --dim")
        if name == "seq":
            return lambda size: replace(request, seq=size)
        return lambda size: replace(request, batch=size)
    if Path(subject).suffix.lower() == ".onnx":
        return lambda size: replace(request, dims=(*request.dims, f"{name}={size}"))
    known = ("batch", "seq", *sorted(named))
    hint = nearest(name, known) or f"; it has {', '.join(known)}"
    raise InputError(
        f"--dim {name}: {subject} has no such dimension{hint} "
        f"(any name may stand for a size in --input, as in 8x3x{name}x{name})"
    )


def _names(text: str) -> list[str]:
    """The names that stand for sizes in the text of an input."""
    found = _SHAPE.match(text)
    return [part for part in _parts(found[2]) if part.isidentifier()] if found else []


def _sized(inputs: tuple[str, ...], name: str, size: int) -> tuple[str, ...]:
    def filled(match: re.Match[str]) -> str:
        parts = (str(size) if part == name else part for part in _parts(match[2]))
        return match[1] + "x".join(parts)

    return tuple(_SHAPE.sub(filled, text) for text in inputs)


def _parts(shape: str) -> list[str]:
    """Sizes and names: an x between two letters belongs to a name."""
    return re.split(r"(?<=[0-9])x|x(?=[0-9])|(?<=[A-Z])x(?=[A-Z])", shape)


def _check_others(names: set[str]) -> None:
    if names:
        text = ", ".join(sorted(names))
        raise InputError(f"--input: {text} has no size; search it with --dim, or write a number")
