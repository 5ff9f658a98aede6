"""``torch.autocast("cuda")`` in a trace: torch's own state, with CUDA's rules behind it.

A trace lives on CPU tensors that stand for the GPU's, on a machine that may have no GPU.
For its time, under ``Target.CUDA``:

1. torch is told that autocast is available for CUDA, and bf16 as the GPU has it.
2. The state of autocast for ``"cuda"`` is torch's own. A tensor's ``device.type`` is
   ``"cpu"`` here and ``"cuda"`` in a real run, so code that asks with it, or enters
   ``torch.autocast(x.device.type)``, means the same state.
3. Where that state is on, the dispatch key of the CPU's autocast is too, under which
   CUDA's rules stand (``graphmem.targets.cuda.autocast``).
4. The cache of weights is cleared where torch clears its own.

5. The recorder is told whether autocast is on, as it decomposes what arrives whole under
   inference_mode; under ``Target.CPU`` too, where nothing else changes.

Not covered: two states at once, one for the GPU's tensors and one for the host's.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch._library import custom_ops

from graphmem.schedule import Unknown
from graphmem.sources.without_gpu import mixed_precision_available
from graphmem.targets.context import current
from graphmem.targets.cuda import autocast
from graphmem.targets.cuda.autocast_lists import policies
from graphmem.trace.recorder import Recorder
from graphmem.trace.replaced import replaced

_is_enabled, _set_enabled = torch.is_autocast_enabled, torch.set_autocast_enabled
_dtype, _set_dtype = torch.get_autocast_dtype, torch.set_autocast_dtype
_mode: Any = torch.amp.autocast_mode


@contextmanager
def autocast_as_on_cuda(recorder: Recorder) -> Iterator[None]:
    """CUDA's autocast, for as long as the context is active; torch's state as it was after."""

    def on_device(tensor: Tensor) -> bool:
        entry = recorder.ledger.find(tensor)
        return entry is None or not entry.host

    casts = autocast.Casts(on_device)
    with ExitStack() as stack:
        stack.enter_context(_state_kept())
        stack.enter_context(autocast.installed(casts))
        stack.enter_context(_switched_off_noted(recorder))
        stack.enter_context(mixed_precision_available(_has_bf16))
        for owner, name, stand_in in _stand_ins(casts):
            stack.enter_context(replaced(owner, name, stand_in))
        torch.set_autocast_enabled("cuda", _is_enabled("cuda"))
        stack.enter_context(autocast_told(recorder, policies().__contains__))
        yield


def _is_cast_on_cpu(operator: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, "AutocastCPU"))


@contextmanager
def autocast_told(
    recorder: Recorder, is_cast: Callable[[str], bool] = _is_cast_on_cpu
) -> Iterator[None]:
    """Tell the recorder whenever autocast for its tensors is switched on or off.

    Args:
        is_cast: whether autocast has a rule for an operator.
    """
    recorder.is_cast = is_cast
    set_enabled = torch.set_autocast_enabled

    def told(*arguments: Any) -> None:
        set_enabled(*arguments)
        recorder.autocast_on = torch.is_autocast_enabled("cpu")

    recorder.autocast_on = torch.is_autocast_enabled("cpu")
    with replaced(torch, "set_autocast_enabled", told):
        yield


@contextmanager
def _state_kept() -> Iterator[None]:
    """The state of autocast as it was, whatever happened inside."""
    before = [(device, _is_enabled(device), _dtype(device)) for device in ("cpu", "cuda")]
    caches = torch.is_autocast_cache_enabled()
    try:
        yield
    finally:
        for device, enabled, dtype in before:
            _set_enabled(device, enabled)
            _set_dtype(device, dtype)
        torch.set_autocast_cache_enabled(caches)


def _has_bf16(including_emulation: bool) -> bool:
    """Older architectures emulate bf16. Source: torch/cuda/__init__.py, is_bf16_supported."""
    return including_emulation or current().gpu.compute_capability >= (8, 0)


def _meant(device: str) -> str:
    """The device whose autocast is meant: the trace's tensors say ``"cpu"``."""
    return "cuda" if device in ("cpu", "cuda") else device


def _stand_ins(casts: autocast.Casts) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
    """What stands in for torch's own functions: owner, name and function."""

    def is_enabled(device_type: str = "cuda") -> bool:
        return _is_enabled(_meant(device_type))

    def set_enabled(device_type: Any, enabled: bool | None = None) -> None:
        if enabled is None:  # the old form, for CUDA
            device_type, enabled = "cuda", device_type
        _set_enabled(_meant(device_type), enabled)
        if _meant(device_type) == "cuda":
            _set_enabled("cpu", enabled)

    def dtype(device_type: str) -> torch.dtype:
        return _dtype(_meant(device_type))

    def set_dtype(device_type: str, dtype: torch.dtype) -> None:
        _set_dtype(_meant(device_type), dtype)

    clear_cache = torch.clear_autocast_cache

    def clear() -> None:
        clear_cache()
        casts.clear()

    yield torch, "is_autocast_enabled", is_enabled
    yield torch, "set_autocast_enabled", set_enabled
    yield torch, "get_autocast_dtype", dtype
    yield torch, "set_autocast_dtype", set_dtype
    yield torch, "clear_autocast_cache", clear
    for owner in (_mode, torch.library, custom_ops):
        yield owner, "_cast", _casting(owner._cast)


def _casting(original: Callable[..., Any]) -> Callable[..., Any]:
    """``_cast`` of ``custom_fwd`` and custom operators, which asks tensors for their device."""

    def cast(value: Any, device_type: str, dtype: torch.dtype) -> Any:
        return original(value, "cpu" if device_type == "cuda" else device_type, dtype)

    return cast


@contextmanager
def made_inside(cls: Any) -> Iterator[weakref.WeakSet[Any]]:
    """The objects of a class that are made while the context is active."""
    made: weakref.WeakSet[Any] = weakref.WeakSet()
    make = cls.__init__

    @functools.wraps(make)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        made.add(self)

    with replaced(cls, "__init__", __init__):
        yield made


@contextmanager
def _switched_off_noted(recorder: Recorder) -> Iterator[None]:
    """Note where an autocast is off because torch found no GPU when it was made.

    One that was made before the trace on a machine without a GPU does not tell whether the
    user or torch switched it off. Inside of another autocast it is taken to be the user.
    """
    no_gpu = torch.cuda.amp.common.amp_definitely_not_available()
    enter = _mode.autocast.__enter__

    with made_inside(_mode.autocast) as ours:

        def entered(self: Any) -> Any:
            is_doubtful = no_gpu and self.device == "cuda" and not self._enabled
            if is_doubtful and self not in ours and not torch.is_autocast_enabled("cuda"):
                recorder.ledger.note(switched_off("torch.autocast('cuda')", recorder))
            return enter(self)

        with replaced(_mode.autocast, "__enter__", entered):
            yield


def switched_off(what: str, recorder: Recorder) -> Unknown:
    """What a report says of an object that may be off for lack of a GPU only."""
    return Unknown(
        f"whether a {what} that was made before the step is to be on",
        recorder.places.forward().source or "",
        "it is off, as torch makes it where there is no GPU; make it in the step",
    )
