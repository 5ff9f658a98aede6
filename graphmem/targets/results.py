"""Results: what a target's kernel returns, where it is not what torch's meta kernel says.

Meta kernels follow the CPU's, in dtypes too, and some operators have none. A rule is a
function of one call, registered for an operator and a target; it gives the layouts of all
results. An operator that the CPU runs as a composition arrives whole where the target has
a kernel for it, and so a rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._ops import OpOverload

from graphmem.errors import InvariantError
from graphmem.options import Target
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call

ResultRule = Callable[[Call], Any]
"""Nested ``Layout`` for the results of one call, whose own result is None; None for a
result that is not defined."""

_RULES: dict[Target, dict[OpOverload, ResultRule]] = {target: {} for target in Target}


def results(func: OpOverload, target: Target) -> Callable[[ResultRule], ResultRule]:
    """Register what an operator returns on a target.

    Raises:
        InvariantError: if the operator has a rule on the target already.
    """

    def register(rule: ResultRule) -> ResultRule:
        if func in _RULES[target]:
            raise InvariantError(f"two rules for the results of {func} on {target}")
        _RULES[target][func] = rule
        return rule

    return register


def result_rules(target: Target) -> dict[OpOverload, ResultRule]:
    """The rules of a target."""
    return _RULES[target]


def fresh(size: Sequence[int], dtype: torch.dtype) -> Layout:
    """A contiguous tensor on a storage of its own."""
    size = tuple(size)
    stride = tuple(math.prod(size[dim + 1 :]) for dim in range(len(size)))
    return Layout(size, stride, dtype, 0, math.prod(size) * dtype.itemsize, 0)


@contextmanager
def kernels_present(target: Target) -> Iterator[None]:
    """A kernel in the dispatcher for operators that the CPU runs as compositions.

    It makes autograd use the operator's own formula. It never runs: a trace answers before.
    """
    library = torch.library.Library("aten", "IMPL")
    try:
        for func in _RULES[target]:
            if _is_composite(func):
                library.impl(func, _not_run, "CPU")
        yield
    finally:
        library._destroy()


def _is_composite(func: OpOverload) -> bool:
    """Whether the CPU has a composition for an operator, and no kernel."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(func.name(), "CompositeImplicitAutograd") and not has(func.name(), "CPU")


def _not_run(*args: Any, **kwargs: Any) -> Any:
    raise InvariantError("a target's kernel was run outside of a trace")
