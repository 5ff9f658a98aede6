"""Model-local functions: each call becomes the nodes that the function consists of.

A function has opsets of its own and its nodes keep them. Inside, its inputs and outputs are
the caller's values, and all other names get the call's name in front.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import onnx

from graphmem.errors import ModelLoadError, shown

MOST_NODES = 1 << 20
"""Nodes up to which calls are expanded: functions that call others twice grow without end."""

MOST_DEPTH = 64
"""Calls within calls, and graphs within graphs, that are read. Protobuf's own limit of 100
nested messages allows 32 graphs in a file."""

FunctionKey = tuple[str, str, str]
"""Domain, name and overload."""


@dataclass(frozen=True)
class Scope:
    """Where a node stands: in the model itself, or in a function that was called.

    ``opsets`` maps domains to versions; ``given`` the function's inputs and outputs to the
    caller's names; ``prefix`` goes in front of all others; ``attributes`` are the caller's.
    """

    opsets: Mapping[str, int]
    given: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    calls: tuple[FunctionKey, ...] = ()

    def name(self, name: str) -> str:
        """The name in the whole model of a name in this scope."""
        if not name or not self.calls:
            return name
        return self.given.get(name, f"{self.prefix}/{name}")


class Functions:
    """The functions of a model by domain, name and overload."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._functions: dict[FunctionKey, onnx.FunctionProto] = {}

    def add(self, key: FunctionKey, proto: onnx.FunctionProto) -> None:
        """Add one.

        Raises:
            ModelLoadError: there is one of this name already.
        """
        if key in self._functions:
            raise ModelLoadError(f"{self._path}: two functions are called {shown(key[1])}")
        self._functions[key] = proto

    def find(self, key: FunctionKey) -> onnx.FunctionProto | None:
        """The function that a node calls; None where it is an operator."""
        return self._functions.get(key)

    def entered(self, key: FunctionKey, call: onnx.NodeProto, outer: Scope, inner: Scope) -> Scope:
        """The scope of the body of a call that stands in ``outer``.

        Args:
            inner: with the opsets, the attributes and the prefix of the body.

        Raises:
            ModelLoadError: the function calls itself, or has fewer inputs than the call.
        """
        function = self._functions[key]
        name = shown(key[1])
        if key in outer.calls:
            raise ModelLoadError(f"{self._path}: function {name} calls itself")
        if len(outer.calls) >= MOST_DEPTH:
            raise ModelLoadError(f"{self._path}: {name} is called {MOST_DEPTH} functions deep")
        for what, own, told in (
            ("inputs", function.input, call.input),
            ("outputs", function.output, call.output),
        ):
            if len(told) > len(own):
                raise ModelLoadError(
                    f"{self._path}: node {shown(call.name)} has {len(told)} {what}, "
                    f"but function {name} has {len(own)}"
                )
        given = {
            **_given(function.output, call.output, outer, leave_out=False),
            **_given(function.input, call.input, outer, leave_out=True),
        }
        return replace(inner, given=given, calls=(*outer.calls, key))


def _given(own: Any, told: Any, outer: Scope, leave_out: bool) -> dict[str, str]:
    """The caller's names for a function's own.

    Args:
        leave_out: those without one get the empty name, as an input that is left out.
    """
    names = {name: outer.name(told[i]) if i < len(told) else "" for i, name in enumerate(own)}
    return names if leave_out else {own: outside for own, outside in names.items() if outside}
