"""Where an operation runs: the user's source line, and the module on whose behalf.

In forward the module is the innermost one whose ``__call__`` is running. In backward it is
the one whose forward created the autograd node that runs: nodes carry a sequence number,
and the first operator dispatched after a node's creation is the node's own.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

import torch

import graphmem
from graphmem.schedule import TOP_LEVEL

_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_OURS = f"{Path(graphmem.__file__).parent}{os.sep}"
_STDLIB = f"{sysconfig.get_path('stdlib')}{os.sep}"
_PACKAGES = ("/site-packages/", "/dist-packages/")
_NN_MODULES = f"{Path(_TORCH, 'nn', 'modules')}{os.sep}"
_NN_PLUMBING = f"{_NN_MODULES}module.py"
_OPTIM = f"{Path(_TORCH, 'optim')}{os.sep}"
_USER, _NN, _INTERNAL, _END = 0, 1, 2, 3
# Of an ONNX model the node says where an operation is from; a rule of the user's own is inside.
_OUTSIDE = tuple(
    f"{_OURS}{Path(*parts)}"
    for parts in (("trace", "step.py"), ("trace", "run.py"), ("sources", "onnx", "module.py"))
)
_NO_SEQUENCE = 2**63  # AccumulateGrad has sequence number 2**64 - 1


@dataclass(frozen=True, slots=True)
class Place:
    """A module path and a source line (``file.py:12``), where known."""

    module: str = TOP_LEVEL
    source: str | None = None


class SourceLines:
    """Finds the user's source line of the running code.

    That is the innermost frame outside of torch, graphmem and Python's own library, and inside
    of the step; where there is none (a model of torch's own modules only, an optimizer), the
    innermost frame in ``torch/nn/modules``, if there is one.
    """

    def __init__(self) -> None:
        self._kinds: dict[CodeType, int] = {}
        self._texts: dict[tuple[CodeType, int], str] = {}

    def current(self) -> str | None:
        """The line that runs now, as ``file.py:12``."""
        frame = sys._getframe(1)
        fallback: tuple[CodeType, int] | None = None
        while frame is not None:
            code = frame.f_code
            kind = self._kinds.get(code)
            if kind is None:
                kind = self._kinds[code] = _kind(code.co_filename)
            if kind == _USER:
                return self._text(code, frame.f_lineno)
            if kind == _END:
                break
            if kind == _NN and fallback is None:
                fallback = (code, frame.f_lineno)
            frame = frame.f_back  # type: ignore[assignment]
        return None if fallback is None else self._text(*fallback)

    def _text(self, code: CodeType, line: int) -> str:
        key = (code, line)
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = f"{short_path(code.co_filename)}:{line}"
        return text


def _kind(filename: str) -> int:
    if filename in _OUTSIDE:
        return _END
    if filename.startswith(_NN_MODULES) and filename != _NN_PLUMBING:
        return _NN
    if filename.startswith((_TORCH, _OURS, "<")) or _is_stdlib(filename):
        return _INTERNAL
    return _USER


def _is_stdlib(filename: str) -> bool:
    """Whether a file is Python's own: ``copy.deepcopy`` clones on behalf of its caller."""
    return filename.startswith(_STDLIB) and not any(part in filename for part in _PACKAGES)


def is_user_file(filename: str) -> bool:
    """Whether a file belongs neither to torch, nor to graphmem or Python's own library."""
    return _kind(filename) == _USER


def short_path(filename: str) -> str:
    """A file's path as a report shows it: below site-packages or the current folder."""
    marker = "site-packages/"
    if marker in filename:
        return filename.rsplit(marker, 1)[1]
    try:
        return str(Path(filename).relative_to(Path.cwd()))
    except ValueError:
        return filename


def asked_by_optimizer() -> str | None:
    """The line of torch.optim's own code that is running, None if another code is."""
    frame = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if filename.startswith(_OPTIM):
            return f"{short_path(filename)}:{frame.f_lineno}"
        if not filename.startswith((_OURS, _TORCH)) or filename.startswith(_NN_MODULES):
            return None
        frame = frame.f_back  # type: ignore[assignment]
    return None


class Places:
    """Gives each operation its place; see the module's docstring."""

    def __init__(self) -> None:
        self.stack: list[str] = []  # paths of the modules whose call is running
        self.parameters: dict[int, str] = {}  # id of a leaf tensor -> its module's path
        self._lines = SourceLines()
        self._origins: dict[int, Place] = {}

    def forward(self) -> Place:
        """The place of an operation of forward, noted for its autograd node."""
        place = Place(self.stack[-1] if self.stack else TOP_LEVEL, self._lines.current())
        self._origins.setdefault(torch._C._autograd._get_sequence_nr() - 1, place)
        return place

    def backward(self, node: torch.autograd.graph.Node | None) -> Place:
        """The place of an operation of a running autograd node."""
        if self.stack:  # a module is called in backward: a checkpoint recomputes it
            return self.forward()
        if node is None:
            return Place(TOP_LEVEL, self._lines.current())
        number = node._sequence_nr()
        if number < _NO_SEQUENCE:
            return self._origins.get(number) or Place()
        variable = getattr(node, "variable", None)
        return Place(self.parameters.get(id(variable), TOP_LEVEL))
