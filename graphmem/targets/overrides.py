"""Overrides: composite operators that a target runs in another way than the CPU.

An override is a Python function that calls the operators that the target's own
composition calls. While a trace is active it stands in torch's dispatcher in the place of
the composition, so it is reached wherever the operator is called from, C++ included
(``nn.TransformerEncoderLayer``, ``F.multi_head_attention_forward``); afterwards nothing is
left registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import OpOverload

from graphmem.errors import InvariantError
from graphmem.options import Target
from graphmem.targets import context
from graphmem.targets.results import kernels_present

Override = Callable[..., Any]

_OVERRIDES: dict[Target, dict[OpOverload, Override]] = {target: {} for target in Target}


def override(func: OpOverload, target: Target) -> Callable[[Override], Override]:
    """Register what a target runs for a composite operator.

    Raises:
        InvariantError: if the operator has an override on the target already.
    """

    def register(function: Override) -> Override:
        if func in _OVERRIDES[target]:
            raise InvariantError(f"two overrides for {func} on {target}")
        _OVERRIDES[target][func] = function
        return function

    return register


def overrides(target: Target) -> dict[OpOverload, Override]:
    """The overrides of a target."""
    return _OVERRIDES[target]


@contextmanager
def installed(target: Target, told: context.Context) -> Iterator[None]:
    """The overrides of a target in torch's dispatcher, told a trace's context.

    They are registered where autograd's kernels are for CPU tensors: above autograd, as
    compositions run. Tensors made under inference_mode do not pass there; for them the
    recorder asks for ``overrides`` itself.
    """
    library = torch.library.Library("aten", "IMPL")
    try:
        for func, function in _OVERRIDES[target].items():
            library.impl(func, function, "AutogradCPU")
        with kernels_present(target), context.active(told):
            yield
    finally:
        library._destroy()
