"""``torch.amp.GradScaler`` in a trace.

A scaler for CUDA switches itself off where there is no GPU; in a trace it is on (see
``graphmem.trace.autocast``), and runs as it is, with its tensors: the scale, the growth
tracker, ``found_inf`` and the inverse scale. Whether a gradient overflowed decides if the
optimizer steps, and nobody knows: ``found_inf`` is taken to stay 0, so that every step is
taken (``optimizer_values.changed``). A scaler that the user made is as it was after
the trace.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from graphmem.schedule import Category, Unknown
from graphmem.trace.adopt import Adoption
from graphmem.trace.autocast import made_inside, switched_off
from graphmem.trace.recorder import Recorder
from graphmem.trace.replaced import replaced

_GradScaler: Any = torch.amp.GradScaler
_CHECKING = ("unscale_", "_check_inf_per_device")  # the latter for fused optimizers


class Scalers:
    """The scalers that a trace meets."""

    def __init__(self, recorder: Recorder, adoption: Adoption) -> None:
        self._recorder = recorder
        self._adoption = adoption
        self._met: weakref.WeakSet[Any] = weakref.WeakSet()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch every scaler, for as long as the context is active."""
        no_gpu = torch.cuda.amp.common.amp_definitely_not_available()
        with ExitStack() as stack:
            ours = stack.enter_context(made_inside(_GradScaler))

            def meet(scaler: Any) -> None:
                is_doubtful = no_gpu and not scaler._enabled and scaler._device == "cuda"
                if is_doubtful and scaler not in ours:
                    self._recorder.ledger.note(switched_off("GradScaler", self._recorder))
                if scaler not in self._met:
                    self._met.add(scaler)
                    self._keep(scaler)

            stack.enter_context(replaced(_GradScaler, "scale", self._scale(meet)))
            for name in (*_CHECKING, "update"):
                stand_in = self._of_optimizer(name, meet)
                stack.enter_context(replaced(_GradScaler, name, stand_in))
            yield

    def _keep(self, scaler: Any) -> None:
        with self._recorder.paused():
            self._adoption.scaler(scaler)

    def _scale(self, meet: Callable[[Any], None]) -> Callable[..., Any]:
        original = _GradScaler.scale

        @functools.wraps(original)
        def scale(scaler: Any, outputs: Any) -> Any:
            meet(scaler)
            scaled = original(scaler, outputs)
            if scaler._enabled:
                state = (scaler._scale, scaler._growth_tracker)
                self._recorder.books.claim(state, Category.OPTIMIZER_STATES)
            return scaled

        return scale

    def _of_optimizer(self, name: str, meet: Callable[[Any], None]) -> Callable[..., Any]:
        """A method whose operators count as the optimizer's."""
        original = getattr(_GradScaler, name)

        @functools.wraps(original)
        def method(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            meet(scaler)
            if scaler._enabled and name in _CHECKING:
                self._recorder.ledger.note(_no_overflow(self._recorder))
            with self._recorder.moments.in_optimizer():
                return original(scaler, *args, **kwargs)

        return method


def _no_overflow(recorder: Recorder) -> Unknown:
    return Unknown(
        "whether a gradient overflows under GradScaler",
        recorder.places.forward().source or "",
        "none does: every step of the optimizer is taken",
    )
