"""What a recorded stack tells: the user's source line, the operator, the kernel, the node.

1. The *source line* is that of the innermost Python frame outside of torch, of Python's
   standard library and of einops and its like, which are a notation for torch's operators;
   where there is none, the innermost Python frame.
2. The *operator* is the innermost one that was dispatched (``at::_ops::mul_Tensor``), other
   than those that others call to get memory (``at::_ops::empty_memory_format``).
3. The *kernel* is the C++ function that asked the allocator, where that is no maker of
   tensors: what it asked for is scratch or a library's workspace.
4. The *node* is the innermost autograd node that was running; the engine's own thread has
   no Python frames, so in backward it is often all that there is.

Python frames are there with ``_record_memory_history(stacks="python")``, C++ frames with
``stacks="all"``, its default.

Source: ``gather_with_cpp`` in torch/csrc/cuda/memory_snapshot.cpp; the names are those of
torchgen's ``at::_ops`` structs, and of torch/csrc/autograd/generated/Functions.h.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from graphmem.snapshots.trace import Frame

_OPERATOR = re.compile(r"at::_ops::(\w+)::")
_NODE = re.compile(r"torch::autograd::(?:generated::)?(\w+)::apply\(")
_FUNCTION = re.compile(r"(\w+)(?:<|\((?!anonymous))")
_TORCH = re.compile(
    r"(?:^|/(?:site|dist)-packages/)torch/"  # installed, or its path was cut short
    r"|/torch/(?:nn|optim|autograd|utils|_\w+)(?:/|\.py$)"  # a build in its own folder
)
_NOTATIONS = re.compile(r"(?:^|/(?:site|dist)-packages/)(?:einops|einx|opt_einsum)/")
_STANDARD_LIBRARY = re.compile(r"/lib/python3\.\d+/(?!(?:site|dist)-packages/)|^<frozen ")
_PACKAGES = re.compile(r"^.*/(?:site|dist)-packages/")

_PLUMBING = frozenset(
    {
        *("empty", "empty_memory_format", "empty_strided", "empty_like"),
        *("new_empty", "new_empty_strided", "resize_"),
    }
)
_TENSOR_MAKERS = re.compile(r"StorageImpl|empty_|resize_")


@dataclass(frozen=True, slots=True)
class Site:
    """Where memory was asked for; None: the stack does not tell.

    ``source`` is ``file.py:12``, ``function`` the Python function around that line.
    """

    source: str | None = None
    function: str | None = None
    op: str | None = None
    kernel: str | None = None
    node: str | None = None


UNKNOWN = Site()


def site(stack: Sequence[Frame]) -> Site:
    """The site of a stack, its innermost frame first."""
    line = _line(stack)
    native = [frame.name for frame in stack if not _is_python(frame)]
    return Site(
        source=None if line is None else f"{_short(line.file)}:{line.line}",
        function=None if line is None else line.name,
        op=_operator(native),
        kernel=_kernel(native),
        node=_first(_NODE, native),
    )


class Sites:
    """The sites of a trace's stacks, each looked up once; the trace must outlive this object."""

    def __init__(self) -> None:
        self._known: dict[int, Site] = {}

    def of(self, stack: tuple[Frame, ...]) -> Site:
        """The site of one of the trace's stacks; they are shared, so their ids tell them."""
        found = self._known.get(id(stack))
        if found is None:
            found = self._known[id(stack)] = site(stack)
        return found


# -- Python


def _line(stack: Sequence[Frame]) -> Frame | None:
    python = [frame for frame in stack if _is_python(frame)]
    own = (frame for frame in python if not _is_foreign(frame.file))
    return next(own, python[0] if python else None)


def _is_python(frame: Frame) -> bool:
    """A cell of a notebook is ``<ipython-input-...>``, what is typed ``<stdin>``."""
    return frame.file.endswith(".py") or frame.file.startswith("<")


def _is_foreign(file: str) -> bool:
    path = file.replace("\\", "/")
    return any(foreign.search(path) for foreign in (_TORCH, _NOTATIONS, _STANDARD_LIBRARY))


def _short(file: str) -> str:
    return _PACKAGES.sub("", file.replace("\\", "/"))


# -- C++


def _first(pattern: re.Pattern[str], names: Sequence[str]) -> str | None:
    return next((found[1] for name in names if (found := pattern.match(name))), None)


def _operator(names: Sequence[str]) -> str | None:
    """``aten.mul_Tensor``; a maker of empty tensors only where nothing called it."""
    found = [match[1] for name in names if (match := _OPERATOR.match(name))]
    if not found:
        return None
    return f"aten.{next((op for op in found if op not in _PLUMBING), found[-1])}"


def _kernel(names: Sequence[str]) -> str | None:
    """The caller of the allocator, ``gpu_reduce_kernel``."""
    inside = [i for i, name in enumerate(names) if "CachingAllocator::" in name.split("(")[0]]
    if not inside or inside[-1] + 1 == len(names):
        return None
    caller = names[inside[-1] + 1]
    if _TENSOR_MAKERS.search(caller.split("(")[0]):
        return None
    found = _FUNCTION.search(caller)
    return found[1] if found else None
