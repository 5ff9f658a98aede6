"""Factories that put their model on a GPU, built without one.

``.cuda()``, ``.to("cuda")`` and ``device="cuda"`` leave a tensor where it would be
without them. So a factory is built in the same way on a machine with a GPU, whose memory
is not touched, and on one without. ``torch.autocast("cuda")`` and ``GradScaler`` objects
come out switched on, as they do where there is a GPU. Not covered: what asks CUDA itself,
such as streams, ``torch.set_default_device``, and ``Module.to(0)`` where there is no GPU to
count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


def _any_gpu_has_bf16(including_emulation: bool) -> bool:
    return True


@contextmanager
def mixed_precision_available(
    has_bf16: Callable[[bool], bool] = _any_gpu_has_bf16,
) -> Iterator[None]:
    """Tell torch that autocast for CUDA is available, for objects that are made inside.

    Where there is no GPU, ``torch.autocast("cuda")`` and ``torch.amp.GradScaler("cuda")``
    switch themselves off with a warning when they are made. Source: torch/amp/
    autocast_mode.py and grad_scaler.py, ``__init__`` (torch 2.13).

    Args:
        has_bf16: the answer of ``torch.cuda.is_bf16_supported(including_emulation)``.
    """
    cuda: Any = torch.cuda
    common = cuda.amp.common
    originals = common.amp_definitely_not_available, cuda.is_bf16_supported

    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return has_bf16(including_emulation)

    common.amp_definitely_not_available = lambda: False
    cuda.is_bf16_supported = is_bf16_supported
    try:
        yield
    finally:
        common.amp_definitely_not_available, cuda.is_bf16_supported = originals


class WithoutGPU(TorchFunctionMode):
    """Drops the GPU from every call that names one."""

    def __enter__(self) -> WithoutGPU:
        self._available = mixed_precision_available()
        self._available.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._available.__exit__(None, None, None)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        options = dict(kwargs or {})
        if func is Tensor.cuda:
            return args[0]
        if func is Tensor.to:
            return _moved(func, args, options)
        if _names_gpu(options.get("device")):
            del options["device"]
        return func(*args, **options)


def _moved(to: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """``Tensor.to`` without its device, if that is a GPU."""
    tensor, *rest = args
    if not moves_to_gpu(to, args, options):
        return to(*args, **options)
    dtype = next((a for a in rest if isinstance(a, torch.dtype)), options.get("dtype"))
    layout = options.get("memory_format", torch.preserve_format)
    return to(tensor, dtype or tensor.dtype, memory_format=layout)


def moves_to_gpu(func: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Whether ``Tensor.to`` or ``Tensor.cuda``, with these arguments, names a GPU."""
    target = options.get("device", args[1] if len(args) > 1 else None)
    return func is Tensor.cuda or _names_gpu(target) or type(target) is int  # a number is a GPU's


def _names_gpu(device: Any) -> bool:
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, str) and device.split(":")[0] == "cuda"
