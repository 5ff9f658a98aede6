"""Values that torch.optim's own code asks for, where an analysis has none.

A user can give no example for them. All of torch.optim's value-dependent branches compare
something with a tolerance: a gradient, a step or a curvature (LBFGS), a norm (Adafactor).
An unknown value is therefore taken to lie beyond the tolerance, on the tolerance's side of
zero: the optimizer has not converged, and keeps all its states.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from graphmem.schedule import Unknown

_GREATER = ("aten.gt.", "aten.ge.")
_LESS = ("aten.lt.", "aten.le.")


_CHECK = torch.ops.aten._amp_foreach_non_finite_check_and_unscale_.default


def changed(func: OpOverload, written: tuple[int, ...]) -> tuple[int, ...]:
    """Of the arguments that an operator writes, those whose value is no longer known.

    ``found_inf`` of ``torch.amp.GradScaler``, the check's second argument, stays what it
    was, 0: no gradient overflows.
    """
    return written[:1] if func is _CHECK else written


def comparison(op: str, args: tuple[Any, ...]) -> bool | None:
    """What a comparison of an unknown value gives; None if ``op`` is not one.

    ``value > 1e-10`` holds and ``value > -1e-9`` does not.
    """
    if not op.startswith((*_GREATER, *_LESS)):
        return None
    bound = args[1]
    beyond = not (isinstance(bound, int | float) and bound < 0)
    return beyond if op.startswith(_GREATER) else not beyond


def assumed(tensor: Tensor, compared: bool | None) -> bool | float | None:
    """The value of an unknown scalar, of which ``compared`` was its ``comparison``.

    None if nothing is assumed of it.
    """
    return math.inf if tensor.dtype.is_floating_point else compared


def note(line: str) -> Unknown:
    """What a report says of it."""
    return Unknown(
        "a branch of the optimizer on a value",
        line,
        "it has not converged: unknown values lie beyond the tolerance",
    )
