"""A case: a step that is run for real on a GPU, or traced."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Step = Callable[[], Any]
M = TypeVar("M", bound=nn.Module)

_CASES: dict[str, Case] = {}


@dataclass(frozen=True, slots=True)
class Case:
    """``make`` takes where modules lie, ``"cuda"`` or ``"meta"``, and gives the step.

    What a step returns stays alive until the next one returns. Cases of one ``group`` share
    a process. ``extra``, on a GPU only, tells more numbers by name. ``measured_only`` says why
    a trace can't run it, where it can't.
    """

    name: str
    group: str
    make: Callable[[str], Step]
    steps: int
    extra: Callable[[], dict[str, int]] | None = None
    measured_only: str = ""


def case(
    name: str,
    *,
    group: str | None = None,
    steps: int = 2,
    extra: Callable[[], dict[str, int]] | None = None,
    measured_only: str = "",
) -> Callable[[Callable[[str], Step]], Callable[[str], Step]]:
    """Register a case; without a group it has a process of its own."""

    def register(make: Callable[[str], Step]) -> Callable[[str], Step]:
        assert name not in _CASES
        _CASES[name] = Case(name, group or name, make, steps, extra, measured_only)
        return make

    return register


def cases() -> dict[str, Case]:
    """All cases by name, in the order in which they were registered."""
    return dict(_CASES)


def placed(build: Callable[[], M], device: str) -> M:
    """A module on a device: built on the CPU and moved, as everybody does; hollow for meta."""
    if device == "meta":
        with torch.device("meta"):
            return build()
    return build().to(device)


def tensors(device: str) -> contextlib.AbstractContextManager[Any]:
    """Where tensors that a step makes lie: on the GPU; a trace makes them hollow itself."""
    return contextlib.nullcontext() if device == "meta" else torch.device(device)


@contextlib.contextmanager
def amp(dtype: torch.dtype | None) -> Iterator[None]:
    """Autocast for CUDA, None for none."""
    with contextlib.nullcontext() if dtype is None else torch.autocast("cuda", dtype=dtype):
        yield


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A random tensor that wants a gradient."""
    return torch.randn(*shape, dtype=dtype, requires_grad=True)
