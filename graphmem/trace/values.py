"""Python's own ways to a tensor's values, while a trace has none to give.

``item`` and ``float`` of an unknown floating-point number give a nan that can be logged and
computed with; ``tolist`` and ``numpy`` of such tensors give nans, and zeros. Where one decides
something, and for truth values, ``Assumptions`` answers. Integers may be sizes: they are
asked for. What is printed decides nothing: dots stand for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, _tensor_str

from graphmem.schedule import Unknown
from graphmem.trace.assumptions import Assumptions, value_needed
from graphmem.trace.hollow import is_hollow
from graphmem.trace.place import Place, asked_by_optimizer
from graphmem.trace.recorder import Recorder
from graphmem.trace.replaced import replaced

_DOTS = "..."
"""As torch prints a tensor without data."""


class UnknownFloat(float):
    """A float whose value is not known, as ``loss.item()`` gives it under trace.

    It can be printed, logged and computed with (it is a nan). A comparison or a conversion to
    a truth value is a branch on a value; an integer of it may be a size, and is asked for.
    """

    __slots__ = ("_asked",)
    _asked: _Asked

    def __new__(cls, asked: _Asked) -> UnknownFloat:
        """A nan; ``asked`` answers for what decides something."""
        made = super().__new__(cls, "nan")
        made._asked = asked
        return made

    def _decides(self, *_: object) -> bool:
        return self._asked.branch("a comparison of tensor.item()")

    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _decides
    __eq__ = __ne__ = _decides
    __hash__ = float.__hash__

    def _number(self, *_: object) -> Any:
        return int(self._asked.number("an integer of tensor.item()"))

    __int__ = __trunc__ = __floor__ = __ceil__ = __round__ = _number

    def _with(self, *_: object) -> UnknownFloat:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _with
    __truediv__ = __rtruediv__ = __neg__ = __abs__ = __pow__ = _with


class _Asked:
    """Answers for the values of unknown tensors, at the line that asks."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._assumptions: Assumptions = recorder.assumptions

    @property
    def place(self) -> Place:
        """Where the user's code is."""
        return self._recorder.places.forward()

    def branch(self, what: str) -> bool:
        """The truth value of something unknown."""
        return self._assumptions.branch(self.place, what)

    def number(self, what: str) -> bool | int | float:
        """A number that only the user can give."""
        return self._assumptions.number(self.place, what)

    def note(self, what: str, assumed: str) -> None:
        """Note values that were given out."""
        place = self.place
        self._recorder.ledger.note(Unknown(f"the value of {what}", place.source or "", assumed))

    def is_unknown(self, tensor: Tensor) -> bool:
        """Whether nobody has a tensor's values; notes what was assumed of known ones."""
        if tensor.layout is not torch.strided:
            return False
        entry = self._recorder.ledger.find(tensor)
        if entry is None or not entry.known:
            return entry is not None
        self._assumptions.decided((entry,))
        return False

    def is_number(self, tensor: Tensor) -> bool:
        """Whether a tensor is one unknown floating-point number, asked for by no optimizer."""
        is_one = tensor.numel() == 1 and tensor.dtype.is_floating_point
        return is_one and asked_by_optimizer() is None and self.is_unknown(tensor)

    def holds(self, what: str) -> bool:
        """Whether a check of unknown values is taken to hold, which is noted."""
        place = self.place
        if self._assumptions.refuses or self._assumptions.given(place) is not None:
            return False
        self._recorder.ledger.note(Unknown(what, place.source or "", "it holds"))
        return True

    def refuse_unless_float(self, tensor: Tensor, what: str) -> None:
        """Ask for values that may be sizes."""
        if self._assumptions.refuses or not tensor.dtype.is_floating_point:
            raise value_needed(what, self.place)


@contextmanager
def asked_for(recorder: Recorder) -> Iterator[None]:
    """Answer Python's ways to the values of unknown tensors, and name the line."""
    asked = _Asked(recorder)
    with ExitStack() as stack:
        for owner, name, function in _methods(asked):
            stack.enter_context(replaced(owner, name, function))
        yield


def _methods(asked: _Asked) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """What is replaced: owner, name and function."""
    methods = {"item": _item, "__float__": _float, "__bool__": _bool}
    methods |= {"tolist": _tolist, "numpy": _numpy, "__format__": _format}
    for name, make in methods.items():
        yield Tensor, name, make(asked, getattr(Tensor, name))
    for name, finite in (("isnan", False), ("isinf", False), ("isfinite", True)):
        yield math, name, _is_finite(getattr(math, name), finite)
    yield torch, "_check_tensor_all_with", _check(asked, torch._check_tensor_all_with)
    yield _tensor_str, "_tensor_str", _printed(_tensor_str._tensor_str)


def _item(asked: _Asked, original: Callable[..., Any]) -> Callable[..., Any]:
    def item(tensor: Tensor) -> Any:
        if not asked.is_number(tensor):
            return original(tensor)
        asked.note("tensor.item()", "nan, not branched on")
        return UnknownFloat(asked)

    return item


def _float(asked: _Asked, original: Callable[..., Any]) -> Callable[..., Any]:
    def to_float(tensor: Tensor) -> Any:
        if not asked.is_number(tensor):
            return original(tensor)
        asked.note("float(tensor)", "nan")
        return math.nan

    return to_float


def _bool(asked: _Asked, original: Callable[..., Any]) -> Callable[..., Any]:
    def truth(tensor: Tensor) -> Any:
        is_number = tensor.dtype is not torch.bool and asked.is_number(tensor)
        return asked.branch("a branch on a value") if is_number else original(tensor)

    return truth


def _tolist(asked: _Asked, original: Callable[..., Any]) -> Callable[..., Any]:
    def tolist(tensor: Tensor) -> Any:
        if not asked.is_unknown(tensor):
            return original(tensor)
        asked.refuse_unless_float(tensor, "tensor.tolist()")
        asked.note("tensor.tolist()", "nan, not branched on")
        return _nested(tuple(tensor.shape), UnknownFloat(asked))

    return tolist


def _nested(shape: tuple[int, ...], value: Any) -> Any:
    return [_nested(shape[1:], value) for _ in range(shape[0])] if shape else value


def _numpy(asked: _Asked, original: Callable[..., Any]) -> Callable[..., Any]:
    def numpy(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not asked.is_unknown(tensor):
            return original(tensor, *args, **kwargs)
        asked.refuse_unless_float(tensor, "tensor.numpy()")
        asked.note("tensor.numpy()", "zeros")
        with asked._recorder.paused():
            return original(torch.zeros(tensor.shape, dtype=tensor.dtype))

    return numpy


def _format(asked: _Asked, original: Callable[..., Any]) -> Callable[..., Any]:
    def format_(tensor: Tensor, spec: str) -> Any:
        if tensor.dim() or tensor.dtype.is_floating_point or not asked.is_unknown(tensor):
            return original(tensor, spec)
        return _DOTS

    return format_


def _printed(original: Callable[..., str]) -> Callable[..., str]:
    """What stands between the brackets of a printed tensor.

    torch switches dispatch modes off to print (torch/_tensor_str.py, ``_str``), so its kernels
    would read memory that a hollow tensor has not.
    """

    def printed(tensor: Tensor, indent: int) -> str:
        return _DOTS if is_hollow(tensor) else original(tensor, indent)

    return printed


def _check(asked: _Asked, original: Callable[..., None]) -> Callable[..., None]:
    """``torch._check_tensor_all``: a run in which it failed would have no peak to tell."""

    def check(error_type: type[BaseException], cond: Any, message: Any = None) -> None:
        is_asked = isinstance(cond, Tensor) and cond.dtype is torch.bool
        if not (is_asked and asked.is_unknown(cond) and asked.holds("a check of values")):
            return original(error_type, cond, message)
        cond._is_all_true()  # it allocates
        return None

    return check


def _is_finite(original: Callable[..., Any], answer: bool) -> Callable[..., Any]:
    """``math.isfinite`` and its kin: an unknown number is taken to be finite."""

    def test(value: Any) -> bool:
        return answer if isinstance(value, UnknownFloat) else bool(original(value))

    return test
