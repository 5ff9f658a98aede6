"""Rules of the user's own: operators and kernels that nothing else tells the results of.

Two kinds of names. ``"mylib::op"`` is an operator of torch's dispatcher that has no fake
kernel. ``"my_package.my_extension.forward"`` is a Python attribute: a function of a C++ or
CUDA extension, or any that reads memory by itself, as the code that calls it names it. While
an analysis runs it is replaced by its rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from graphmem.errors import UsageError
from graphmem.targets.layout import Layout
from graphmem.targets.scratch import Call

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)


@dataclass(frozen=True, slots=True)
class UserRule:
    """``results`` makes meta tensors of meta arguments, ``scratch`` bytes of the same."""

    results: Function
    scratch: Callable[..., int] | None = None

    def scratch_of(self, call: Call) -> int:
        """The bytes that the kernel allocates for itself."""
        if self.scratch is None:
            return 0
        kwargs = {key: _on_meta(value) for key, value in call.kwargs.items()}
        return int(self.scratch(*_on_meta(call.args), **kwargs))


_RULES: dict[str, UserRule] = {}


def register_rule(name: str, *, scratch: Callable[..., int] | None = None) -> Callable[[F], F]:
    """Say what an operator or a foreign kernel returns, for this process.

    The decorated function takes the arguments with meta tensors in the place of tensors, and
    returns its results as meta tensors, or an argument that is written and returned::

        @graphmem.register_rule("mylib::top_half", scratch=lambda x: 4 * x.numel())
        def top_half(x):
            return x.new_empty(x.shape[0] // 2, *x.shape[1:])

    It goes before a fake kernel, and a later one of the same name replaces it.

    Args:
        name: ``"mylib::op"``, or ``"package.module.function"``.
        scratch: the bytes that the kernel allocates while it runs, of the same arguments.

    Raises:
        UsageError: the name is neither.
    """
    is_operator = name.count("::") == 1 and all(name.split("::"))
    is_function = "::" not in name and all(part.isidentifier() for part in name.split("."))
    if not is_operator and not (is_function and "." in name):
        raise UsageError(
            f"register_rule: {name!r} is neither an operator such as 'mylib::op' "
            "nor a function such as 'package.module.function'"
        )

    def register(function: F) -> F:
        _RULES[name] = UserRule(function, scratch)
        return function

    return register


def operator_rule(name: str) -> UserRule | None:
    """The user's rule for an operator, by its name in the dispatcher."""
    return _RULES.get(name)


def function_rules() -> dict[str, UserRule]:
    """The user's rules for Python functions, by their dotted names."""
    return {name: rule for name, rule in _RULES.items() if "::" not in name}


def _on_meta(value: Any) -> Any:
    if isinstance(value, Layout):
        made: Tensor = torch.empty_strided(
            value.size, value.stride, dtype=value.dtype, device="meta"
        )
        return made
    if isinstance(value, list | tuple):
        return type(value)(_on_meta(item) for item in value)
    return value
