"""Python's own ways to a tensor's values, while a trace has none to give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from torch import Tensor

from graphmem.schedule import Unknown
from graphmem.trace.answers import value_needed
from graphmem.trace.place import asked_by_optimizer
from graphmem.trace.recorder import Recorder


class UnknownFloat(float):
    """A float whose value is not known, as ``loss.item()`` gives it under trace.

    It can be printed, logged and computed with (it is a nan); a comparison or a
    conversion to an integer or boolean would decide something, and is refused.
    """

    __slots__ = ("_refuse",)
    _refuse: Callable[[str], NoReturn]

    def __new__(cls, refuse: Callable[[str], NoReturn]) -> UnknownFloat:
        """A nan; ``refuse`` raises the error for what would decide something."""
        made = super().__new__(cls, "nan")
        made._refuse = refuse
        return made

    def _decides(self, *_: object) -> NoReturn:
        self._refuse("a comparison of tensor.item()")

    __lt__ = __le__ = __gt__ = __ge__ = __bool__ = __int__ = _decides
    __eq__ = __ne__ = _decides
    __hash__ = float.__hash__

    def _with(self, *_: object) -> UnknownFloat:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _with
    __truediv__ = __rtruediv__ = __neg__ = __abs__ = __pow__ = _with


@contextmanager
def asked_for(recorder: Recorder) -> Iterator[None]:
    """Answer ``item``, ``tolist`` and ``numpy`` of unknown tensors, and name the line."""

    def refuse(what: str) -> NoReturn:
        raise value_needed(what, recorder.places.forward())

    def is_unknown(tensor: Tensor) -> bool:
        if tensor.layout is not torch.strided:
            return False
        entry = recorder.ledger.find(tensor)
        return entry is not None and not entry.known

    def item(tensor: Tensor) -> Any:
        if asked_by_optimizer() is not None:
            return originals["item"](tensor)
        if tensor.numel() == 1 and tensor.dtype.is_floating_point and is_unknown(tensor):
            place = recorder.places.forward()
            recorder.ledger.note(
                Unknown("the value of tensor.item()", place.source or "", "nan, not branched on")
            )
            return UnknownFloat(refuse)
        return originals["item"](tensor)

    def refusing(name: str) -> Callable[..., Any]:
        def method(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            if is_unknown(tensor):
                refuse(f"tensor.{name}()")
            return originals[name](tensor, *args, **kwargs)

        return method

    originals = {name: getattr(Tensor, name) for name in ("item", "tolist", "numpy")}
    own = {name: name in vars(Tensor) for name in originals}
    for name in originals:
        setattr(Tensor, name, item if name == "item" else refusing(name))
    try:
        yield
    finally:
        for name, original in originals.items():
            if own[name]:
                setattr(Tensor, name, original)
            else:
                delattr(Tensor, name)
